// The sender's side of dispatch, for both modes: each row is read once and stored to all ranks that it goes to.
#pragma once

#include "device/row_jobs.h"
#include "device/step.h"

namespace moe {

// Sends one payload (rows or side) of this warp's share of the tokens. `placeOf(destination)` is where a token's row
// begins there.
template <class Warp, class PlaceOf>
MOE_LANES void pushPayload(const Warp& warp, const HandleView& h, const std::uint8_t* from, int tokens,
                           std::uint32_t rowBytes, const Parts& parts, WarpIndex w, PlaceOf placeOf) {
  const auto item = [&](int i) { return partOf(parts, rowBytes, w.index + i * w.count); };
  warp.streamRows(
      stridedCount(tokens * parts.count, w), h.slots,
      [&](int i) {
        const PartOf part = item(i);
        const std::uint8_t* row = from + static_cast<std::int64_t>(part.row) * rowBytes;
        return CopyJob{row + part.begin, part.bytes, h.destinationCount[part.row]};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        const Destination to = h.destinations[part.row * h.slots + ordinal];
        return placeOf(to) + part.begin;
      });
}

}  // namespace moe
