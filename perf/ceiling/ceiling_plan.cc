#include "perf/ceiling/ceiling_plan.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "backend/cuda_plan.h"

namespace moe::perf {
namespace {

std::uint64_t addressOf(const Addresses& bases, const RowPlace& place, std::uint32_t rowBytes) {
  return bases[static_cast<std::size_t>(place.rank)] + static_cast<std::uint64_t>(place.row) * rowBytes;
}

bool sameSource(const RowCopy& a, const RowCopy& b) {
  return a.from.rank == b.from.rank && a.from.row == b.from.row;
}

}  // namespace

SentRows sentRows(const Plan& plan, int nranks, int destinationsPerToken) {
  SentRows sent(static_cast<std::size_t>(nranks));
  for (std::size_t token = 0; token + 1 < plan.entryOffsets.size(); ++token) {
    std::int32_t slot = static_cast<std::int32_t>(token) * destinationsPerToken;
    std::int32_t rank = -1;
    for (std::int32_t i = plan.entryOffsets[token]; i < plan.entryOffsets[token + 1]; ++i) {
      const Entry& entry = plan.entries[static_cast<std::size_t>(i)];
      if (entry.rank == rank) continue;  // entries are ordered by rank, so this is another expert of the same rank
      rank = entry.rank;
      sent[static_cast<std::size_t>(rank)].push_back(slot++);
    }
  }
  return sent;
}

std::vector<std::int32_t> toNumbers(const SentRows& sent) {
  std::vector<std::int32_t> numbers{static_cast<std::int32_t>(sent.size())};
  for (const auto& slots : sent) numbers.push_back(static_cast<std::int32_t>(slots.size()));
  for (const auto& slots : sent) numbers.insert(numbers.end(), slots.begin(), slots.end());
  return numbers;
}

SentRows toSentRows(const std::vector<std::int32_t>& numbers) {
  SentRows sent(static_cast<std::size_t>(numbers.at(0)));
  auto next = numbers.begin() + 1 + numbers.at(0);
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    sent[rank].assign(next, next + numbers.at(rank + 1));
    next += numbers.at(rank + 1);
  }
  return sent;
}

std::vector<RowCopy> RowTraffic::dispatchPushes(int rank) const {
  std::vector<RowCopy> copies;
  for (int phase = 1; phase < nranks(); ++phase) {
    const int to = (rank + phase) % nranks();
    std::int64_t row = 0;
    for (int source = 0; source < rank; ++source) row += static_cast<std::int64_t>(slots(source, to).size());
    for (const std::int32_t slot : slots(rank, to))
      copies.push_back({{rank, slot / destinationsPerToken_}, {to, row++}});
  }
  std::stable_sort(copies.begin(), copies.end(),
                   [](const RowCopy& a, const RowCopy& b) { return a.from.row < b.from.row; });
  return copies;
}

std::vector<RowCopy> RowTraffic::combinePushes(int rank) const {
  std::vector<RowCopy> copies;
  std::size_t turns = 0;
  for (int owner = 0; owner < nranks(); ++owner) turns = std::max(turns, slots(owner, rank).size());
  for (std::size_t turn = 0; turn < turns; ++turn) {
    for (int phase = 1; phase < nranks(); ++phase) {
      const int owner = (rank + phase) % nranks();
      if (turn >= slots(owner, rank).size()) continue;
      copies.push_back({{rank, static_cast<std::int64_t>(copies.size())}, {owner, slots(owner, rank)[turn]}});
    }
  }
  return copies;
}

std::vector<RowCopy> RowTraffic::combinePulls(int rank) const {
  std::vector<RowCopy> copies;
  for (int phase = 1; phase < nranks(); ++phase) {
    for (const RowCopy& push : combinePushes((rank + phase) % nranks())) {
      if (push.to.rank != rank) continue;
      copies.push_back({push.from, {rank, push.to.row / destinationsPerToken_ * destinationsPerToken_}});
    }
  }
  std::stable_sort(copies.begin(), copies.end(),
                   [](const RowCopy& a, const RowCopy& b) { return a.to.row < b.to.row; });
  for (std::size_t i = 1; i < copies.size(); ++i) {
    const std::int64_t last = copies[i - 1].to.row;
    if (last / destinationsPerToken_ == copies[i].to.row / destinationsPerToken_) copies[i].to.row = last + 1;
  }
  return copies;
}

std::int64_t RowTraffic::flatRows(int rank) const {
  std::int64_t rows = 0;
  for (int source = 0; source < nranks(); ++source) rows += static_cast<std::int64_t>(slots(source, rank).size());
  return rows;
}

std::vector<RowSpec> arrivalsOf(const std::vector<RowCopy>& copies, int rank) {
  std::vector<RowSpec> specs;
  for (const RowCopy& copy : copies) {
    if (copy.to.rank != rank) continue;
    specs.push_back({copy.to.row, copy.from.rank, static_cast<std::int32_t>(copy.from.row), 0, 0});
  }
  return specs;
}

std::vector<std::int32_t> offsetsByToken(const std::vector<RowSpec>& arrivals, int tokens, int destinationsPerToken) {
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(tokens) + 1);
  for (const RowSpec& spec : arrivals) offsets[static_cast<std::size_t>(spec.row / destinationsPerToken) + 1] += 1;
  for (std::size_t token = 0; token + 1 < offsets.size(); ++token) offsets[token + 1] += offsets[token];
  return offsets;
}

Parts cutRows(std::int64_t rows, std::uint32_t rowBytes, int warps, std::uint32_t bytesMax) {
  const int rowCount = static_cast<int>(std::min<std::int64_t>(rows, warps));
  const Parts shared = planParts({1, warps, false}, rowCount, rowBytes);
  if (std::min(shared.bytes, rowBytes) <= bytesMax) return {shared.count, shared.bytes};
  const std::uint32_t least = (rowBytes + bytesMax - 1) / bytesMax;
  const auto bytes = static_cast<std::uint32_t>(roundUp((rowBytes + least - 1) / least, 16));
  return {static_cast<std::int32_t>((rowBytes + bytes - 1) / bytes), bytes};
}

std::vector<BulkCopy> bulkCopies(const std::vector<RowCopy>& copies, Parts parts, std::uint32_t rowBytes,
                                 const Addresses& from, const Addresses& to) {
  std::vector<BulkCopy> pieces;
  pieces.reserve(copies.size() * static_cast<std::size_t>(parts.count));
  for (auto first = copies.begin(); first != copies.end();) {
    const auto last =
        std::find_if_not(first, copies.end(), [&](const RowCopy& copy) { return sameSource(*first, copy); });
    for (std::uint32_t offset = 0; offset < rowBytes; offset += parts.bytes) {
      for (auto copy = first; copy != last; ++copy) {
        pieces.push_back({addressOf(from, copy->from, rowBytes) + offset, addressOf(to, copy->to, rowBytes) + offset,
                          std::min(parts.bytes, rowBytes - offset), copy == first ? 1U : 0U});
      }
    }
    first = last;
  }
  return pieces;
}

std::vector<std::uint64_t> sinkTable(const std::vector<RowCopy>& pushes, std::int64_t rows, int width,
                                     std::uint32_t rowBytes, const Addresses& to) {
  std::vector<std::uint64_t> table(static_cast<std::size_t>(rows * width));
  std::size_t sink = 0;
  for (std::size_t i = 0; i < pushes.size(); ++i) {
    sink = i > 0 && sameSource(pushes[i - 1], pushes[i]) ? sink + 1 : 0;
    table.at(static_cast<std::size_t>(pushes[i].from.row * width) + sink) = addressOf(to, pushes[i].to, rowBytes);
  }
  return table;
}

std::vector<std::uint64_t> sourceTable(const std::vector<RowCopy>& pulls, int tokens, int width,
                                       int destinationsPerToken, std::uint32_t rowBytes, const Addresses& from) {
  std::vector<std::uint64_t> table(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(width));
  for (const RowCopy& pull : pulls) {
    const std::int64_t token = pull.to.row / destinationsPerToken, place = pull.to.row % destinationsPerToken;
    table.at(static_cast<std::size_t>(token * width + place)) = addressOf(from, pull.from, rowBytes);
  }
  return table;
}

std::vector<int> multiprocessorsToTry(int asked, int choice, bool fewTokens, int all) {
  if (asked > 0) return {std::min(asked, all)};
  std::set<int> counts{all};
  for (const int count : {8, 16, 24, 32, 64}) {
    if (!fewTokens && count < all) counts.insert(count);
  }
  if (choice > 0) counts.insert(std::min(choice, all));
  return {counts.begin(), counts.end()};
}

}  // namespace moe::perf
