// The header of a row, which travels with the route. It says which token of which rank the row is, and how this rank's
// experts use it.
//   Quad 0      token at its source, its wave (waves.h) and an index, source rank, number of entries. The index is the
//               row's index on its rail (rails.h), or among its source's rows of a wave by experts (expert_waves.h).
//   Quad 1 + i  entry i, in top-k order: local expert, position in top-k, bits of the weight, row
// "row" is the row of an expert-major layout, else 0.
#pragma once

#include "device/rows/row_math.h"
#include "device/view/views.h"

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

// The source of row `row` in FLAT order. The rows of each source begin at `rankOffsets`.
MOE_LANES int sourceOf(const std::int32_t* rankOffsets, int nranks, int row) {
  int low = 0, high = nranks;  // invariant: rankOffsets[low] <= row < rankOffsets[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (rankOffsets[middle] <= row ? low : high) = middle;
  }
  return low;
}

// The origin of a row: its source, and its position among the rows of that source.
struct Arrival {
  int from, index;
};
MOE_LANES Arrival arrivalOf(const std::int32_t* rankOffsets, int nranks, int row) {
  const int from = sourceOf(rankOffsets, nranks, row);
  return {from, row - rankOffsets[from]};
}
MOE_LANES Arrival arrivalOf(const HandleView& h, int row) {
  return arrivalOf(h.arriving.rankOffsets, h.map.nranks, row);
}

MOE_LANES Quad makeHead(int token, int wave, int index, int source, int entries) {
  return {static_cast<std::uint32_t>(token),
          static_cast<std::uint32_t>(index) * kHeadWaves + static_cast<std::uint32_t>(wave),
          static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(entries)};
}
MOE_LANES Quad makeEntry(unsigned localExpert, int k, float weight, int row) {
  return {localExpert, static_cast<std::uint32_t>(k), floatToBits(weight), static_cast<std::uint32_t>(row)};
}

}  // namespace moe
