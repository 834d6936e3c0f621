// The slots of low-latency operations. A handle has one of the communicator's sets. A slot in it belongs to a source
// rank and a position among the rows that this rank sends here. Rows arrive in the slots with a dispatch, and go back
// from the same slots with a combine. A handle packs the areas of its set for its own sizes, which are the same on all
// ranks.
#pragma once

#include "device/view/views.h"

namespace moe {

// The flags [from] of the handle's set in one of the arrays [set][from].
MOE_LANES std::uint64_t llFlags(const CommView& c, const HandleView& h, std::uint64_t area) {
  return area + static_cast<std::uint64_t>(h.llSet * c.nranks) * sizeof(Flag);
}

// Where the handle's set begins in an area with slots of `bytesMax` bytes.
MOE_LANES std::uint64_t llSetOffset(const CommView& c, const HandleView& h, std::uint64_t area, int bytesMax) {
  return area + static_cast<std::uint64_t>(std::int64_t{h.llSet} * c.nranks * c.llTokensMax * bytesMax);
}

// Where slot `index` of source `from` lies in such an area, if slots are used with `bytes` bytes.
MOE_LANES std::uint64_t llSlotOffset(const CommView& c, const HandleView& h, std::uint64_t area, int bytesMax,
                                     std::uint32_t bytes, int from, int index) {
  const std::int64_t slot = static_cast<std::int64_t>(from) * h.tokensMax + index;
  return llSetOffset(c, h, area, bytesMax) + static_cast<std::uint64_t>(slot * bytes);
}
MOE_LANES std::uint8_t* llSlot(const CommView& c, const HandleView& h, int rank, std::uint64_t area, int bytesMax,
                               std::uint32_t bytes, int from, int index) {
  return c.in<std::uint8_t>(rank, llSetOffset(c, h, area, bytesMax)) +
         (static_cast<std::int64_t>(from) * h.tokensMax + index) * bytes;
}

// Where a token's row is put from, in an area [set][llTokensMax] of such slots.
MOE_LANES std::uint64_t llOutOffset(const CommView& c, const HandleView& h, std::uint64_t area, int bytesMax,
                                    std::uint32_t bytes, int token) {
  return area +
         static_cast<std::uint64_t>(std::int64_t{h.llSet} * c.llTokensMax * bytesMax + std::int64_t{token} * bytes);
}

// The terms of a dispatch. A rank sends them to every other rank with its rows.
MOE_LANES std::uint64_t llSizesOffset(const CommView& c, const HandleView& h, int from) {
  return c.at.llSizes + static_cast<std::uint64_t>(h.llSet * c.nranks + from) * sizeof(std::uint64_t);
}

// The number of rows that went from this rank to rank `to` in the set's last dispatch that routed. This is the rank's
// own copy; other ranks learn the number from flags.
MOE_LANES std::int32_t* llLastRows(const CommView& c, const HandleView& h, int to) {
  return c.mine<std::int32_t>(c.at.llLastRows) + (std::int64_t{h.llSet} * c.nranks + to);
}

// The metadata that a dispatch that routes sends to a rank with its rows: the handle's terms (a Quad); the dispatch's
// terms in two words (a Quad); the number of entries for each of the receiver's experts; and from llToldHead on the
// headers, in the order of the rows.
MOE_LANES std::uint64_t llToldOffset(const CommView& c, const HandleView& h, std::uint64_t area, int part) {
  return area + static_cast<std::uint64_t>(std::int64_t{h.llSet * c.nranks + part} * c.at.llToldBytes);
}
MOE_LANES std::uint64_t llToldHeader(const CommView& c, const HandleView& h, int index) {
  return static_cast<std::uint64_t>(c.at.llToldHead + std::int64_t{index} * h.headerStride() * int{sizeof(Quad)});
}

}  // namespace moe
