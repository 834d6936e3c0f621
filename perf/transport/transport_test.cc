#include "perf/transport/transport_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "perf/transport/transport_link.h"

namespace moe::perf {
namespace {

using Clock = std::chrono::steady_clock;

// The two areas of the window: source and target of puts.
constexpr std::uint32_t kAreaBytes = 8U << 20U;
constexpr std::uint64_t kSource = 0;
constexpr std::uint64_t kTarget = kAreaBytes;

constexpr std::uint32_t kSizes[] = {64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, kAreaBytes};
constexpr int kRounds = 50;
constexpr int kRowsPerRound = 16;
constexpr int kRoundTripsWarm = 20;
constexpr int kRoundTrips = 200;
constexpr int kPutsFirst = 8;  // their time determines how many puts fill kMeasureSeconds
constexpr int kPutsMax = 100000;
constexpr double kMeasureSeconds = 0.03;

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Rows of the order check. They have odd sizes and follow each other without gaps.
std::uint32_t rowBytes(int row) {
  return 16U * static_cast<std::uint32_t>(1 + row * 37 % 256);
}
std::uint64_t rowOffset(int row) {
  std::uint64_t offset = 0;
  for (int before = 0; before < row; ++before) offset += rowBytes(before);
  return offset;
}

// A word that is unique to this round, place and sender.
std::uint64_t wordOf(int from, int round, std::uint64_t place) {
  return (place << 32U | static_cast<std::uint64_t>(from) << 16U | static_cast<std::uint64_t>(round + 1)) *
         0x9e3779b97f4a7c15U;
}

void fillRound(TransportLink& link, int from, int round) {
  for (std::uint64_t at = 0; at < rowOffset(kRowsPerRound); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = wordOf(from, round, at);
    std::memcpy(link.at(kSource + at), &word, sizeof word);
  }
}

bool roundIsThere(TransportLink& link, int from, int round) {
  for (std::uint64_t at = 0; at < rowOffset(kRowsPerRound); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = wordOf(from, round, at);
    if (std::memcmp(link.at(kTarget + at), &word, sizeof word) != 0) return false;
  }
  return true;
}

// The seconds for this many puts, until the word behind them has been answered.
double timePuts(TransportLink& link, int to, std::uint32_t bytes, int count) {
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) {
    const std::uint64_t at = static_cast<std::uint64_t>(i) * bytes % kAreaBytes;
    link.put(to, kTarget + at, kSource + at, bytes);
  }
  link.signal(to);
  link.awaitSignal(to);
  return secondsSince(begin);
}

double measureSpeed(TransportLink& link, int to, std::uint32_t bytes) {
  const double first = timePuts(link, to, bytes, kPutsFirst);
  const int count = std::clamp(static_cast<int>(kMeasureSeconds / first * kPutsFirst), kPutsFirst, kPutsMax);
  return count / timePuts(link, to, bytes, count);
}

// The sender's part: measures round trips, then a speed for each size. On request it spoils one byte of one round's
// last row.
std::vector<double> send(TransportLink& link, int from, int to, bool plantWrong) {
  for (int round = 0; round < kRounds; ++round) {
    fillRound(link, from, round);
    if (plantWrong && round == kRounds / 2) *link.at(kSource + rowOffset(kRowsPerRound) - 1) ^= 1;
    for (int row = 0; row < kRowsPerRound; ++row) {
      link.put(to, kTarget + rowOffset(row), kSource + rowOffset(row), rowBytes(row));
    }
    link.signal(to);
    link.awaitSignal(to);
  }
  std::vector<double> measured;
  for (int i = -kRoundTripsWarm; i < kRoundTrips; ++i) {
    const auto begin = Clock::now();
    link.signal(to);
    link.awaitSignal(to);
    if (i >= 0) measured.push_back(secondsSince(begin) * 1e6);
  }
  for (const std::uint32_t bytes : kSizes) measured.push_back(measureSpeed(link, to, bytes));
  return measured;
}

// Answers each word, and returns the number of rounds with wrong rows.
double receive(TransportLink& link, int from) {
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    link.awaitSignal(from);
    wrong += roundIsThere(link, from, round) ? 0 : 1;
    link.signal(from);
  }
  const int answers = kRoundTripsWarm + kRoundTrips + 2 * static_cast<int>(std::size(kSizes));
  for (int i = 0; i < answers; ++i) {
    link.awaitSignal(from);
    link.signal(from);
  }
  return wrong;
}

PairResult testPair(TransportLink& link, Group& group, int from, int to, bool plantWrong) {
  std::vector<double> mine;
  try {
    if (group.rank() == from) mine = send(link, from, to, plantWrong);
    if (group.rank() == to) mine = {receive(link, from)};
  } catch (const std::exception& error) {
    throw std::runtime_error(fmt::format("--transport-test: puts of rank {} to rank {}: {}", from, to, error.what()));
  }
  const std::vector<std::vector<double>> all = group.gather(mine);
  const std::vector<double>& measured = all[static_cast<std::size_t>(from)];
  PairResult result{from, to, kRounds, static_cast<int>(all[static_cast<std::size_t>(to)].at(0)), {}, {}};
  result.roundTrips.assign(measured.begin(), measured.begin() + kRoundTrips);
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    result.speeds.push_back({kSizes[i], measured.at(kRoundTrips + i)});
  }
  return result;
}

}  // namespace

bool TransportResult::correct() const {
  return std::all_of(pairs.begin(), pairs.end(), [](const PairResult& pair) { return pair.wrongRounds == 0; });
}

TransportResult testTransport(const Options& options, Group& group,
                              const std::function<void(const std::string&)>& say) {
  TransportLink link(options, group, 2 * std::size_t{kAreaBytes});
  TransportResult result{group.nranks(), link.domainSize(), link.transportName(), {}};
  for (int from = 0; from < group.nranks(); ++from) {
    for (int to = 0; to < group.nranks(); ++to) {
      if (from / link.domainSize() == to / link.domainSize()) continue;
      say(fmt::format("rank {} to rank {}", from, to));
      result.pairs.push_back(testPair(link, group, from, to, options.plantWrong));
    }
  }
  link.close(group);
  return result;
}

}  // namespace moe::perf
