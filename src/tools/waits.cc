#include "tools/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace moe::tools {
namespace {

// A rank stands out if its value is larger than the next one by this factor, and if it costs at least this share of the
// time.
constexpr double kMuchMore = 2, kShareMin = 0.01;

double seconds(std::int64_t ns) {
  return static_cast<double>(ns) * 1e-9;
}

// The largest value's index, or -1 if it does not stand out.
int standsOut(const std::vector<double>& values) {
  if (values.size() < 2) return -1;
  const auto largest = std::max_element(values.begin(), values.end());
  double next = 0;
  for (auto value = values.begin(); value != values.end(); ++value) {
    if (value != largest) next = std::max(next, *value);
  }
  // Each of two ranks can wait only for the other one.
  return *largest >= kMuchMore * next ? static_cast<int>(largest - values.begin()) : -1;
}

Verdict byWaits(const WaitTable& waits) {
  std::vector<double> shares;
  for (int rank = 0; rank < waits.nranks; ++rank) shares.push_back(waits.shareFor(rank));
  const int rank = standsOut(shares);
  if (rank < 0 || shares[static_cast<std::size_t>(rank)] < kShareMin) {
    return {-1, "no rank is much slower than the others"};
  }
  return {rank, fmt::format("rank {}: the others waited for it {:.1f} % of the time", rank,
                            100 * shares[static_cast<std::size_t>(rank)])};
}

Verdict byBegins(const std::vector<RankDump>& dumps) {
  const std::vector<double> late = latenessOf(dumps);
  const int rank = standsOut(late);
  std::int64_t error = 0;
  for (const RankDump& dump : dumps) error = std::max(error, dump.clockError);
  if (rank < 0 || late[static_cast<std::size_t>(rank)] < 2 * seconds(error)) {
    return {-1, "waits are not recorded, and no rank begins its steps much later than the others"};
  }
  return {rank, fmt::format("rank {}: it begins its steps {:.1f} us after the first rank, on average", rank,
                            1e6 * late[static_cast<std::size_t>(rank)])};
}

}  // namespace

double WaitTable::shareFor(int awaited) const {
  double waited = 0, time = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    if (rank == awaited) continue;
    waited += of(rank, awaited);
    time += span[static_cast<std::size_t>(rank)];
  }
  return time > 0 ? waited / time : 0;
}

WaitTable waitsOf(const std::vector<RankDump>& dumps) {
  WaitTable table;
  if (dumps.empty()) return table;
  table.nranks = dumps[0].nranks;
  const auto n = static_cast<std::size_t>(table.nranks);
  table.seconds.resize(n * n);
  table.span.resize(n);
  for (const RankDump& dump : dumps) {
    const auto rank = static_cast<std::size_t>(dump.rank);
    if (!dump.steps.empty()) table.span[rank] = seconds(dump.taken - dump.steps.front().begin);
    for (const DumpedStep& step : dump.steps) {
      if (step.worstRank < 0) continue;
      table.known = true;
      // A step that is still waiting has not noted how long.
      const std::int64_t ns = step.end == 0 ? dump.taken - step.begin : step.worstWaitNs;
      table.seconds[rank * n + static_cast<std::size_t>(step.worstRank)] += seconds(ns);
    }
  }
  return table;
}

std::vector<double> latenessOf(const std::vector<RankDump>& dumps) {
  std::vector<double> late(dumps.empty() ? 0 : static_cast<std::size_t>(dumps[0].nranks), -1);
  std::map<std::int64_t, std::vector<std::pair<int, std::int64_t>>> begins;
  for (const RankDump& dump : dumps) {
    for (const DumpedStep& step : dump.steps) begins[step.number].emplace_back(dump.rank, step.begin);
  }
  std::vector<double> sum(late.size());
  int steps = 0;
  for (const auto& [number, ranks] : begins) {
    if (ranks.size() != dumps.size() || ranks.size() < 2) continue;
    ++steps;
    std::int64_t first = ranks[0].second;
    for (const auto& [rank, begin] : ranks) first = std::min(first, begin);
    for (const auto& [rank, begin] : ranks) sum[static_cast<std::size_t>(rank)] += seconds(begin - first);
  }
  for (const RankDump& dump : dumps) {
    const auto rank = static_cast<std::size_t>(dump.rank);
    if (steps > 0) late[rank] = sum[rank] / steps;
  }
  return late;
}

Verdict slowestRank(const std::vector<RankDump>& dumps) {
  const WaitTable waits = waitsOf(dumps);
  return waits.known ? byWaits(waits) : byBegins(dumps);
}

}  // namespace moe::tools
