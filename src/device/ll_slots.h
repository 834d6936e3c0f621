// The slots of low-latency operations. A handle has one of kLlSets sets; in it a slot belongs to a source rank and a
// position among the rows that it sends here. Rows come in with a dispatch and, in the same slot, go back with a
// combine. A handle packs the areas of its set for its own sizes, the same at all ranks.
#pragma once

#include "device/row_header.h"

namespace moe {

// The flags [from] of the handle's set, in one of the [set][from] arrays.
MOE_LANES std::uint64_t llFlags(const CommView& c, const HandleView& h, std::uint64_t area) {
  return area + static_cast<std::uint64_t>(h.llSet * c.nranks) * sizeof(Flag);
}

// Where the handle's set begins in an area whose slots have `bytesMax` bytes.
MOE_LANES std::uint64_t llSetOffset(const CommView& c, const HandleView& h, std::uint64_t area, int bytesMax) {
  return area + static_cast<std::uint64_t>(std::int64_t{h.llSet} * c.nranks * c.llTokensMax * bytesMax);
}

// Slot `index` of source `from` at rank `rank`, in such an area, used with `bytes` bytes.
MOE_LANES std::uint8_t* llSlot(const CommView& c, const HandleView& h, int rank, std::uint64_t area, int bytesMax,
                               std::uint32_t bytes, int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(from) * h.tokensMax + index;
  return c.in<std::uint8_t>(rank, llSetOffset(c, h, area, bytesMax)) + slot * bytes;
}

MOE_LANES Quad* llHeader(const CommView& c, const HandleView& h, int rank, int from, int index) {
  constexpr int kQuad = static_cast<int>(sizeof(Quad));
  const int most = static_cast<int>(headerQuads(c.topkMax)) * kQuad, used = h.headerStride() * kQuad;
  return reinterpret_cast<Quad*>(
      llSlot(c, h, rank, c.at.llHeaders, most, static_cast<std::uint32_t>(used), from, index));
}

// What source `from` says of its rows: signature, number of rows, entries per local expert.
MOE_LANES std::int32_t* llCounts(const CommView& c, const HandleView& h, int rank, int from) {
  return c.in<std::int32_t>(rank, c.at.llCounts) +
         static_cast<std::int64_t>(h.llSet * c.nranks + from) * c.at.llCountStride;
}
enum LlCount : int { kLlSignature, kLlRowCount, kLlExpertCounts };

}  // namespace moe
