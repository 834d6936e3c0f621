// The private memory of a handle as one block: its size and the place of each array.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "device/view/terms.h"
#include "device/view/views.h"

namespace moe {

struct HandleShape {
  ExpertMap map;
  int named = 0;  // experts that topkIdx may name; 0: those of the map
  int rank = 0;
  int domains = 1;
  int topk = 0;
  Layout layout = Layout::flat;
  bool lowLatency = false;
  int tokensMax = 0;
  int waves = kHtWaves;  // the same in all HT handles of a communicator
  int alignment = 1;
  bool wideIndex = false;
  bool merges = false;
  bool arrivals = false;        // only with layouts that have a row per expert
  int rowsBudget = 0;           // 0: no budget
  bool expertCounts = false;    // counts of all experts, on every rank
  bool combineWeights = false;  // combines carry weights; layouts with a row per expert only
  int routeWarpsMax = 1;
  int tableBlocks = 0;      // dispatches that route: number of blocks whose tables are not in scratch memory
  bool countsStay = false;  // the host's counts stay in the handle's memory, from where the host copies them
};

// The most tokens that all ranks together may route.
inline std::int64_t allTokensMax(const HandleShape& s) {
  return std::int64_t{s.map.nranks} * s.tokensMax;
}
// The most rows that may arrive at a rank, counting each token once.
inline std::int64_t arrivingRowsMax(const HandleShape& s) {
  return s.rowsBudget > 0 && s.rowsBudget < allTokensMax(s) ? s.rowsBudget : allTokensMax(s);
}

// The most rows that a layout may have, padding included.
inline std::int64_t layoutRowsMax(const HandleShape& s) {
  const std::int64_t arriving = arrivingRowsMax(s), experts = s.map.count(0);
  if (s.layout == Layout::expertMajorPadded) return allTokensMax(s) * experts;
  if (s.layout == Layout::rankMajor) return allTokensMax(s);
  const std::int64_t copies = s.topk < experts ? s.topk : experts;
  if (s.layout == Layout::expertMajor) return arriving * copies + experts * (s.alignment - 1);
  return arriving;
}

// Terms that must agree between ranks.
inline Quad handleTerms(const HandleShape& s) {
  namespace terms = handle_terms;
  const std::uint64_t kind = terms::kExperts.packed(s.map.experts) | terms::kTopk.packed(s.topk) |
                             terms::kLayout.packed(static_cast<int>(s.layout)) |
                             terms::kMode.packed(s.lowLatency ? 1 : 0) | terms::kArrivals.packed(s.arrivals ? 1 : 0) |
                             terms::kCombineWeights.packed(s.combineWeights ? 1 : 0) |
                             terms::kExpertCounts.packed(s.expertCounts ? 1 : 0);
  return {static_cast<std::uint32_t>(kind), static_cast<std::uint32_t>(s.tokensMax),
          static_cast<std::uint32_t>(s.alignment), static_cast<std::uint32_t>(s.rowsBudget)};
}

// The number of words that a route stores for the host, from CountWords::rows on.
inline std::int64_t countWordsOf(const HandleShape& s) {
  const std::int64_t experts = s.map.count(s.rank), wanted = s.rowsBudget > 0 ? 1 + experts : 0;
  return 2 + s.map.nranks + experts + wanted + (s.expertCounts ? s.map.experts : 0);
}
// Memory that the host reads: HandleView::fault, then these words.
inline std::int64_t toldBytes(const HandleShape& s) {
  return std::int64_t{sizeof(Failure)} + countWordsOf(s) * std::int64_t{sizeof(CountWord)};
}
inline CountWords* countsTold(std::uint8_t* told) {
  return reinterpret_cast<CountWords*>(told + sizeof(Failure));
}

// Sets those fields of a view that follow from its handle's shape.
inline void setShape(const HandleShape& s, HandleView* view) {
  HandleView& v = *view;
  v.map = s.map;
  v.placesNamed = s.named > 0 ? s.named : s.map.experts;
  v.topk = s.topk;
  v.destinationsMax = destinationsPerToken(s.topk, s.map.nranks);
  v.byTopk = divisorOf(v.topk);
  v.byItems = divisorOf(v.topk + v.destinationsMax);
  v.byHeader = divisorOf(v.headerStride());
  v.layout = s.layout;
  v.lowLatency = s.lowLatency ? 1 : 0;
  v.tokensMax = s.tokensMax;
  v.waves = s.waves;
  v.alignment = s.alignment;
  v.byAlignment = divisorOf(s.alignment);
  v.wideIndex = s.wideIndex ? 1 : 0;
  v.merges = s.merges ? 1 : 0;
  v.arrivals = s.arrivals ? 1 : 0;
  v.rowsBudget = s.rowsBudget;
  v.countsExperts = s.expertCounts ? 1 : 0;
  v.weighted = s.combineWeights && expertRows(v) ? 1 : 0;
  v.terms = handleTerms(s);
  v.domains = s.domains;
  v.llTables = layOutLlTables(s.map, s.topk, s.tokensMax);
  const bool fits = s.tokensMax <= kLlRouteTokensMax && llTableBytes(v.llTables) <= kLlTableBytesMax;
  v.routesInDispatch = s.lowLatency && s.rowsBudget == 0 && !s.expertCounts && fits ? 1 : 0;
}

// Points the pointers of `view` into the block at `memory`, and returns the block's size. With memory NULL it only
// computes the size.
inline std::int64_t layOutHandle(const HandleShape& s, std::uint8_t* memory, HandleView* view) {
  std::int64_t end = 0;
  auto take = [&](auto*& pointer, std::int64_t count) {
    using Item = std::remove_reference_t<decltype(*pointer)>;
    pointer = memory == nullptr ? nullptr : reinterpret_cast<Item*>(memory + end);
    end += roundUp(count * std::int64_t{sizeof(Item)}, 256);
  };
  setShape(s, view);
  HandleView& v = *view;
  const std::int64_t entries = std::int64_t{s.tokensMax} * s.topk, n = s.map.nranks, experts = s.map.count(s.rank);
  const std::int64_t chunks = (s.tokensMax + kChunkTokens - 1) / kChunkTokens, warps = s.routeWarpsMax;
  take(v.state, 1);
  take(v.sent.ids, entries);
  take(v.sent.weights, entries);
  take(v.sent.tables.users, chunks * v.buckets());
  take(v.sent.tables.chunkStart, chunks * v.buckets());
  take(v.sent.tables.warpCounts, warps * v.buckets());
  take(v.sent.tables.warpPlace, warps * v.buckets());
  take(v.sent.tables.warpGroups, warps * v.buckets());
  take(v.sent.tables.warpRankBase, warps * n);
  take(v.sent.tables.warpRankOffsets, warps * (n + 1));
  take(v.sent.tables.warpWaveRows, v.wavesByExpert() ? warps * (kHtWaves * n + 1) : 0);
  take(v.sent.tables.blocks, dispatchRoutes(v) ? s.tableBlocks * llTableBytes(v.llTables) : 0);
  take(v.sent.totals, v.buckets());
  take(v.sent.entryRow, entries);
  take(v.sent.destinationCount, s.tokensMax);
  v.sent.localCount = v.sent.destinationCount;  // the same array in one domain
  if (s.domains > 1) take(v.sent.localCount, s.tokensMax);
  take(v.sent.destinations, std::int64_t{s.tokensMax} * v.destinationsMax);
  take(v.sent.wavesOf, v.wavesByExpert() ? s.tokensMax : 0);
  take(v.sent.layoutRowsOf, n);
  take(v.sent.flatRowsOf, n);
  std::uint8_t* placement = nullptr;  // Handle::setPlacement fills it before any route uses it
  take(placement, placementBytes(v.placesNamed));
  v.placement = reinterpret_cast<Placement*>(placement);
  take(v.arriving.rows, 1);
  take(v.arriving.rankOffsets, n + 1);
  take(v.arriving.rowsPerExpert, experts);
  take(v.arriving.expertOffsets, experts + 1);
  take(v.arriving.wanted, s.rowsBudget > 0 ? 1 + experts : 0);
  take(v.arriving.allExperts, s.expertCounts ? s.map.experts : 0);
  take(v.arriving.headers, arrivingRowsMax(s) * v.headerStride());
  take(v.arriving.waveStart, s.lowLatency ? 0 : kHtWaves * n);
  take(v.arriving.waveRows, v.wavesByExpert() ? arrivingRowsMax(s) : 0);
  take(v.arriving.waveRowsStart, v.wavesByExpert() ? kHtWaves * n + 1 : 0);
  take(v.arriving.complete, s.arrivals ? experts : 0);
  take(v.arriving.sentIn, s.lowLatency && expertRows(v) ? arrivingRowsMax(s) : 0);
  const std::int64_t rails = v.hasRails() ? s.domains : 0;
  take(v.rails.outgoing, s.domains == 1 ? 0 : (s.lowLatency ? n : rails) * s.tokensMax);
  take(v.rails.count, rails * s.tokensMax);
  take(v.rails.to, rails * s.tokensMax * v.railDestinationsMax());
  take(v.rails.start, rails * (kHtWaves + 1));
  CountWord* counts = nullptr;
  take(counts, s.countsStay ? countWordsOf(s) : 0);
  v.counts = s.countsStay ? reinterpret_cast<CountWords*>(counts) : nullptr;
  return end;
}

}  // namespace moe
