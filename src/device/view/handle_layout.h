// The private memory of a handle as one block: how large it is and where each array lies.
#pragma once

#include <initializer_list>
#include <type_traits>

#include "device/view/terms.h"
#include "device/view/views.h"

namespace moe {

struct HandleShape {
  ExpertMap map;
  int rank = 0;
  int domains = 1;
  int topk = 0;
  Layout layout = Layout::flat;
  bool lowLatency = false;
  int tokensMax = 0;
  int alignment = 1;
  bool wideIndex = false;
  bool arrivals = false;  // of layouts with a row per expert
  int routeWarpsMax = 1;
};

// Most rows that may arrive at a rank, each token once.
inline std::int64_t arrivingRowsMax(const HandleShape& s) {
  return std::int64_t{s.map.nranks} * s.tokensMax;
}

// Most rows that a layout may have, padding included.
inline std::int64_t layoutRowsMax(const HandleShape& s) {
  const std::int64_t arriving = arrivingRowsMax(s), experts = s.map.count(0);
  if (s.layout == Layout::expertMajorPadded) return arriving * experts;
  const std::int64_t copies = s.topk < experts ? s.topk : experts;
  if (s.layout == Layout::expertMajor) return arriving * copies + experts * (s.alignment - 1);
  return arriving;
}

// Fills the pointers of `view` with places in the block at `memory`, and returns the block's size. With memory NULL:
// the size alone.
inline std::int64_t layOutHandle(const HandleShape& s, std::uint8_t* memory, HandleView* view) {
  std::int64_t end = 0;
  auto take = [&](auto*& pointer, std::int64_t count) {
    using Item = std::remove_reference_t<decltype(*pointer)>;
    pointer = memory == nullptr ? nullptr : reinterpret_cast<Item*>(memory + end);
    end += roundUp(count * std::int64_t{sizeof(Item)}, 256);
  };
  HandleView& v = *view;
  v.map = s.map;
  v.topk = s.topk;
  v.slots = slotsPerToken(s.topk, s.map.nranks);
  v.byTopk = divisorOf(v.topk);
  v.byItems = divisorOf(v.topk + v.slots);
  v.layout = s.layout;
  v.lowLatency = s.lowLatency ? 1 : 0;
  v.tokensMax = s.tokensMax;
  v.alignment = s.alignment;
  v.byAlignment = divisorOf(s.alignment);
  v.wideIndex = s.wideIndex ? 1 : 0;
  v.arrivals = s.arrivals ? 1 : 0;
  v.terms = packHandleTerms(s.map.experts, s.tokensMax, s.alignment, s.topk, static_cast<int>(s.layout), s.lowLatency,
                            s.arrivals);
  v.domains = s.domains;
  const std::int64_t entries = std::int64_t{s.tokensMax} * s.topk, n = s.map.nranks, experts = s.map.count(s.rank);
  const std::int64_t chunks = (s.tokensMax + kChunkTokens - 1) / kChunkTokens, warps = s.routeWarpsMax;
  take(v.state, 1);
  take(v.ids, entries);
  take(v.weights, entries);
  take(v.users, chunks * v.buckets());
  take(v.chunkStart, chunks * v.buckets());
  take(v.warpCounts, warps * v.buckets());
  take(v.warpPlace, warps * v.buckets());
  take(v.warpGroups, warps * v.buckets());
  take(v.warpRankBase, warps * n);
  take(v.warpRankOffsets, warps * (n + 1));
  take(v.warpWaveRows, v.wavesByExpert() ? warps * (kHtWaves * n + 1) : 0);
  take(v.totals, v.buckets());
  take(v.entryRow, entries);
  take(v.destinationCount, s.tokensMax);
  v.nearCount = v.destinationCount;  // in one domain the same
  if (s.domains > 1) take(v.nearCount, s.tokensMax);
  take(v.destinations, std::int64_t{s.tokensMax} * v.slots);
  take(v.wavesOf, v.wavesByExpert() ? s.tokensMax : 0);
  take(v.layoutRowsOf, n);
  take(v.flatRowsOf, n);
  take(v.rows, 1);
  take(v.rankOffsets, n + 1);
  take(v.rowsPerExpert, experts);
  take(v.expertOffsets, experts + 1);
  take(v.headers, arrivingRowsMax(s) * v.headerStride());
  take(v.waveStart, s.lowLatency ? 0 : kHtWaves * n);
  take(v.waveRows, v.wavesByExpert() ? arrivingRowsMax(s) : 0);
  take(v.waveRowsStart, v.wavesByExpert() ? kHtWaves * n + 1 : 0);
  take(v.arrived, s.arrivals ? experts : 0);
  const std::int64_t rails = v.hasRails() ? s.domains : 0;
  take(v.outgoing, s.domains == 1 ? 0 : (s.lowLatency ? n : rails) * s.tokensMax);
  take(v.railCount, rails * s.tokensMax);
  take(v.railTo, rails * s.tokensMax * v.railSlots());
  take(v.railStart, rails * (kHtWaves + 1));
  return end;
}

inline std::int64_t hostCountsBytes(const HandleShape& s) {
  return std::int64_t{sizeof(HostCounts)} + (s.map.nranks + s.map.count(s.rank)) * std::int64_t{sizeof(std::int32_t)};
}

}  // namespace moe
