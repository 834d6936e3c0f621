// The header of every row, which travels with the route: which token of which rank it is and what this rank's experts
// are to do with it.
//   Quad 0      token at its source, its wave (waves.h) and an index, source rank, number of entries. The index: on its
//               rail (rails.h), or among its source's rows of a wave by experts (expert_waves.h)
//   Quad 1 + i  entry i, in top-k order: local expert, position in top-k, bits of the weight, row
// "row" is the row of an expert-major layout, else 0.
#pragma once

#include "device/row_math.h"
#include "device/views.h"

namespace moe {

inline constexpr std::uint32_t kHeadWaves = 16;
static_assert(kHtWaves <= 16);

MOE_LANES int headToken(const Quad& head) {
  return static_cast<int>(head.x);
}
MOE_LANES int headWave(const Quad& head) {
  return static_cast<int>(head.y % kHeadWaves);
}
MOE_LANES int headIndex(const Quad& head) {
  return static_cast<int>(head.y / kHeadWaves);
}
MOE_LANES int headSource(const Quad& head) {
  return static_cast<int>(head.z);
}
MOE_LANES int headEntries(const Quad& head) {
  return static_cast<int>(head.w);
}
MOE_LANES int entryExpert(const Quad& entry) {
  return static_cast<int>(entry.x);
}
MOE_LANES int entryTopk(const Quad& entry) {
  return static_cast<int>(entry.y);
}
MOE_LANES float entryWeight(const Quad& entry) {
  return bitsToFloat(entry.z);
}
MOE_LANES int entryRow(const Quad& entry) {
  return static_cast<int>(entry.w);
}

MOE_HOST_DEVICE bool expertRows(const HandleView& h) {
  return h.layout == Layout::expertMajor || h.layout == Layout::expertMajorPadded;
}

// The source of row `row` in FLAT order.
MOE_LANES int sourceOf(const HandleView& h, int row) {
  int low = 0, high = h.map.nranks;  // rankOffsets[low] <= row < rankOffsets[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (h.rankOffsets[middle] <= row ? low : high) = middle;
  }
  return low;
}

// Where that row came: its source, and its position among the rows of that source.
struct Arrival {
  int from, index;
};
MOE_LANES Arrival arrivalOf(const HandleView& h, int row) {
  const int from = sourceOf(h, row);
  return {from, row - h.rankOffsets[from]};
}

// Writes the header of `token`'s row for a destination. One lane.
template <class Warp>
MOE_LANES void laneWriteHeader(const Warp& warp, const CommView& c, const HandleView& h, Quad* to, int token, int wave,
                               int index, int rank) {
  const int first = h.map.first(rank);
  const int* ids = h.ids + std::int64_t{token} * h.topk;
  int entries = 0;
  for (int k = 0; k < h.topk; ++k) {
    if (ids[k] < 0 || h.map.rankOf(ids[k]) != rank) continue;
    const int row = expertRows(h) ? h.entryRow[token * h.topk + k] : 0;
    ++entries;
    warp.laneStore(to + entries, Quad{static_cast<std::uint32_t>(ids[k] - first), static_cast<std::uint32_t>(k),
                                      floatToBits(h.weights[token * h.topk + k]), static_cast<std::uint32_t>(row)});
  }
  const std::uint32_t place = static_cast<std::uint32_t>(index) * kHeadWaves + static_cast<std::uint32_t>(wave);
  warp.laneStore(to, Quad{static_cast<std::uint32_t>(token), place, static_cast<std::uint32_t>(c.rank),
                          static_cast<std::uint32_t>(entries)});
}

}  // namespace moe
