#include "support/programs/protocol_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "device/view/placement_table.h"
#include "device/view/settled.h"

namespace moe::test {

TestComm::TestComm(const CommShape& shape, std::uint64_t timeoutNs) : shape_(shape), at_(WindowPlan::of(shape)) {
  listAreas();
  for (int r = 0; r < shape.nranks; ++r) {
    ranks_.push_back(std::make_unique<RankMemory>(at_.totalBytes));
    ranks_.back()->orders.timeoutNs = timeoutNs;
    ranks_.back()->departed.resize(static_cast<std::size_t>(shape.nranks));
    // Flags and landing words start at zero. The rest of the window may hold anything.
    for (const Area& area : areas_) {
      if (area.begin < at_.routeCounts || area.begin == at_.llCombineRows)
        std::memset(ranks_.back()->window.data() + area.begin, 0, area.bytes);
    }
  }
  for (int r = 0; r < shape.nranks; ++r) {
    rank(r).far = {at_.far, {{rank(r).puts.ring()}, 1}};
    for (int other = 0; other < shape.nranks; ++other)
      rank(r).windows.push_back(reaches(r, other) ? rank(other).window.data() : nullptr);
  }
}

void TestComm::listAreas() {
  const CommShape& s = shape_;
  auto add = [&](const char* name, std::uint64_t begin, std::int64_t bytes) {
    areas_.push_back({name, begin, static_cast<std::uint64_t>(bytes)});
  };
  const std::int64_t n = s.nranks, flags = 8 * n, two = 2 * n, sets = s.llSets;
  const std::int64_t header = 16 * (1 + std::int64_t{s.topkMax});
  const std::int64_t ll = s.ll ? s.llTokensMax : 0, ht = s.ht ? s.tokensMax : 0,
                     staging = s.ht ? s.stagingAreas * s.stagingRows : 0;
  add("routeCountsReady", at_.routeCountsReady, flags);
  add("routeHeadersReady", at_.routeHeadersReady, flags);
  add("routeCountsRead", at_.routeCountsRead, flags);
  add("routeCountsAgain", at_.routeCountsAgain, flags);
  add("htOutputReady", at_.htOutputReady, flags);
  add("htRowsReady", at_.htRowsReady, flags);
  add("htWeightsReady", at_.htWeightsReady, flags);
  add("htCombineDone", at_.htCombineDone, 2 * flags);
  add("htRowWaves", at_.htRowWaves, kHtWaves * flags);
  add("htCombineWaves", at_.htCombineWaves, kHtWaves * flags);
  add("llRowsReady", at_.llRowsReady, sets * flags);
  add("llCombineSizes", at_.llCombineSizes, sets * flags);
  add("llCombineReady", at_.llCombineReady, sets * flags);
  add("llCombineFree", at_.llCombineFree, sets * flags);
  add("llWeightsReady", at_.llWeightsReady, sets * flags);
  add("llFree", at_.llFree, sets * flags);
  add("llLastRows", at_.llLastRows, sets * 4 * n);
  add("routeCounts", at_.routeCounts, two * 4 * at_.countStride);
  add("waveCounts", at_.waveCounts, s.ht ? two * 4 * kHtWaves : 0);
  add("htOutputs", at_.htOutputs, two * std::int64_t{sizeof(OutputRecord)});
  add("htScales", at_.htScales, two * kScaleRecords * std::int64_t{sizeof(ScaleRecord)});
  add("htScaleOffsets", at_.htScaleOffsets, s.ht ? two * 4 * ((s.expertsMax + n - 1) / n) : 0);
  add("htCombines", at_.htCombines, two * std::int64_t{sizeof(CombineRecord)});
  add("llSizes", at_.llSizes, sets * n * 8);
  add("llRows", at_.llRows, sets * n * ll * s.rowBytesMax);
  add("llSide", at_.llSide, sets * n * ll * s.sideBytesMax);
  add("llCombineRows", at_.llCombineRows, sets * n * ll * s.rowBytesMax);
  add("llCombineGrads", at_.llCombineGrads, sets * ll * 4 * s.topkMax);
  add("llWeights", at_.llWeights, sets * n * ll * 4 * s.topkMax);
  add("llTold", at_.llTold, ll > 0 ? sets * n * at_.llToldBytes : 0);
  add("routeHeaders", at_.routeHeaders, two * at_.routeTokensMax * header);
  add("htCombineGrads", at_.htCombineGrads, 2 * ht * 4 * s.topkMax);
  add("htWeights", at_.htWeights, two * ht * 4 * s.topkMax);
  add("staging", at_.staging, staging * s.rowBytesMax);
  add("stagingSide", at_.stagingSide, staging * s.sideBytesMax);
  add("heap", at_.heap, s.heapBytes);
  if (s.domains() > 1) listRemoteAreas(add);
  std::sort(areas_.begin(), areas_.end(),
            [](const Area& a, const Area& b) { return a.begin != b.begin ? a.begin < b.begin : a.bytes < b.bytes; });
}

template <class Add>
void TestComm::listRemoteAreas(Add add) {
  const CommShape& s = shape_;
  const std::int64_t n = s.nranks, domains = s.domains(), flags = 8 * domains, sets = s.llSets,
                     header = 16 * (1 + std::int64_t{s.topkMax});
  const std::int64_t ll = s.ll ? s.llTokensMax : 0, ht = s.ht ? s.tokensMax : 0;
  add("htRailWaves", at_.far.htRailWaves, kHtWaves * flags);
  add("htSumWaves", at_.far.htSumWaves, kHtWaves * flags);
  add("htRailsFree", at_.far.htRailsFree, flags);
  add("htSumsFree", at_.far.htSumsFree, flags);
  add("leaving", at_.far.leaving, 8 * n);
  add("railSizes", at_.far.railSizes, 2 * flags);
  add("routeHeadersOut", at_.far.routeHeadersOut, n * at_.routeTokensMax * header);
  add("railTables", at_.far.railTables, 2 * domains * ht * at_.far.railQuads * 16);
  add("railTablesOut", at_.far.railTablesOut, domains * ht * at_.far.railQuads * 16);
  add("llRowsOut", at_.far.llRowsOut, sets * ll * s.rowBytesMax);
  add("llSideOut", at_.far.llSideOut, sets * ll * s.sideBytesMax);
  add("llToldOut", at_.far.llToldOut, ll > 0 ? sets * n * at_.llToldBytes : 0);
  add("llCombineIn", at_.far.llCombineIn, sets * n * ll * s.rowBytesMax);
  add("llGradsIn", at_.far.llGradsIn, sets * n * ll * 4 * s.topkMax);
  add("llGradsOut", at_.far.llGradsOut, sets * n * ll * 4 * s.topkMax);
  add("railRowsOut", at_.far.railRowsOut, ht * s.rowBytesMax);
  add("railSideOut", at_.far.railSideOut, ht * s.sideBytesMax);
  add("railRows", at_.far.railRows, domains * ht * s.rowBytesMax);
  add("railSide", at_.far.railSide, domains * ht * s.sideBytesMax);
  add("railSumsOut", at_.far.railSumsOut, domains * ht * s.rowBytesMax);
  add("railSums", at_.far.railSums, domains * ht * s.rowBytesMax);
  add("railGradsOut", at_.far.railGradsOut, domains * ht * 4 * s.topkMax);
  add("railGrads", at_.far.railGrads, domains * ht * 4 * s.topkMax);
}

std::vector<Flag> TestComm::lastingWords(int r) const {
  const auto* words = reinterpret_cast<const Flag*>(ranks_[static_cast<std::size_t>(r)]->window.data());
  return {words, words + moe::lastingWords(at_)};
}

std::string TestComm::setLastingWords(int r, const std::vector<Flag>& words, const std::vector<int>& lost) {
  auto* window = reinterpret_cast<Flag*>(rank(r).window.data());
  std::string wrong;
  for (const Area& area : areas_) {
    if (area.begin >= at_.llLastRows) continue;
    // A word for each rank, or over rails for each domain.
    const bool rails = area.begin >= at_.far.htRailWaves && area.begin < at_.far.leaving;
    const auto each = static_cast<std::size_t>(rails ? shape_.domains() : nranks());
    const auto own0 = static_cast<std::size_t>(rails ? r / shape_.domainSize : r);
    for (std::size_t i = 0; i < area.bytes / sizeof(Flag); ++i) {
      const std::size_t word = area.begin / sizeof(Flag) + i, own = word - i % each + own0;
      if (flagEpoch(words[word]) < flagEpoch(window[word])) wrong = nameOf(window + word) + " goes back";
      const bool isLost = std::find(lost.begin(), lost.end(), static_cast<int>(word - own) + r) != lost.end();
      if (!isLost && words[word] != words[own]) wrong = nameOf(window + word) + " differs between ranks";
    }
  }
  std::copy(words.begin(), words.end(), window);
  return wrong;
}

void TestComm::clear(int r, std::uint64_t begin, std::uint64_t end) {
  std::uint8_t* window = rank(r).window.data();
  for (const Area& area : areas_) {
    if (area.begin >= begin && area.begin + area.bytes <= end) std::memset(window + area.begin, 0, area.bytes);
  }
}

CommView TestComm::view(int r) {
  RankMemory& memory = rank(r);
  CommView view{};
  view.rank = r;
  view.nranks = shape_.nranks;
  view.domainSize = shape_.domainRanks();
  view.domainFirst = r / view.domainSize * view.domainSize;
  if (shape_.domains() > 1) view.far = &memory.far;
  std::copy_n(memory.windows.begin(), std::min(shape_.nranks, kInlineWindows), view.inlineWindows);
  view.windows = memory.windows.data();
  view.at = at_;
  view.state = &memory.state;
  view.failure = &memory.failure;
  view.orders = &memory.orders;
  view.departed = memory.departed.data();
  view.tokensMax = shape_.tokensMax;
  view.llTokensMax = shape_.llTokensMax;
  view.topkMax = shape_.topkMax;
  view.rowBytesMax = shape_.rowBytesMax;
  view.sideBytesMax = shape_.sideBytesMax;
  return view;
}

std::string TestComm::findStrayWrite() const {
  for (int r = 0; r < shape_.nranks; ++r) {
    const GuardedBytes& window = ranks_[static_cast<std::size_t>(r)]->window;
    if (!window.guardsAreIntact()) return fmt::format("rank {}'s window was written out of bounds", r);
    for (std::size_t i = 0; i < areas_.size(); ++i) {
      const std::uint64_t end = areas_[i].begin + areas_[i].bytes;
      const std::uint64_t next = i + 1 < areas_.size() ? areas_[i + 1].begin : at_.totalBytes;
      if (end > next) return fmt::format("{} overlaps the next area of the window", areas_[i].name);
      if (isPoison(window.data() + end, next - end)) continue;
      return fmt::format("rank {}'s window was written behind {}", r, areas_[i].name);
    }
  }
  return {};
}

std::string TestComm::nameOf(const void* address) const {
  const auto* byte = static_cast<const std::uint8_t*>(address);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const std::uint8_t* window = ranks_[r]->window.data();
    if (byte < window || byte >= window + at_.totalBytes) continue;
    const auto offset = static_cast<std::uint64_t>(byte - window);
    for (const Area& area : areas_) {
      if (offset >= area.begin && offset - area.begin < area.bytes)
        return fmt::format("rank {} {}+{}", r, area.name, offset - area.begin);
    }
    return fmt::format("rank {} window+{}", r, offset);
  }
  return "private";
}

bool TestComm::isFlag(const void* address) const {
  const auto* byte = static_cast<const std::uint8_t*>(address);
  for (const auto& rank : ranks_) {
    const std::uint8_t* window = rank->window.data();
    if (byte >= window && byte < window + at_.routeCounts) return true;
  }
  return false;
}

TestHandle::TestHandle(TestComm& comm, const HandleShape& shape)
    : shape_(shape), domainSize_(comm.shape().domainRanks()), waits_(static_cast<std::size_t>(comm.nranks())) {
  const int llSet = shape.lowLatency ? comm.takeLlSet() : 0;
  for (int r = 0; r < comm.nranks(); ++r) {
    shape_.rank = r;
    HandleView view{};
    memory_.emplace_back(static_cast<std::size_t>(layOutHandle(shape_, nullptr, &view)));
    told_.emplace_back(static_cast<std::size_t>(toldBytes(shape_)));
    layOutHandle(shape_, memory_.back().data(), &view);
    placements_.push_back(std::exchange(view.placement, nullptr));
    *view.state = HandleState{};
    if (shape_.arrivals) std::fill_n(view.arriving.complete, shape_.map.count(r), Flag{0});
    dispatches_.push_back(0);
    view.fault = reinterpret_cast<Failure*>(told_.back().data());
    view.counts = countsTold(told_.back().data());
    *view.fault = Failure{};
    *view.counts = CountWords{};
    view.llSet = llSet;
    views_.push_back(view);
  }
}

void TestHandle::setPlacement(int rank, const std::optional<PlacedExperts>& placed) {
  HandleView& view = views_[static_cast<std::size_t>(rank)];
  std::optional<PlacedExperts> own = placed;
  if (rank == stranger_) own = placed ? otherPlacement(*placed) : std::optional(spreadExperts(shape_.map.experts));
  view.placement = nullptr;
  if (!own) return;
  view.placement = placements_[static_cast<std::size_t>(rank)];
  const std::vector<std::int32_t> logicalOf(own->logicalOf.begin(), own->logicalOf.end());
  const auto table = own->foreign > 0 ? ownExpertsTable(shape_.named, own->logicalOf.front(), shape_.map.experts)
                                      : placementTable({shape_.map, rank, domainSize_}, own->logicalExperts, logicalOf);
  std::memcpy(view.placement, table.data(), table.size());
}

std::string TestHandle::findStrayWrite() const {
  for (std::size_t r = 0; r < memory_.size(); ++r) {
    if (!memory_[r].guardsAreIntact() || !told_[r].guardsAreIntact())
      return fmt::format("rank {}'s handle memory was written out of bounds", r);
  }
  return {};
}

}  // namespace moe::test
