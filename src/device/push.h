// The sender's side of dispatch, for both modes: each row is read once and stored to all ranks that it goes to.
#pragma once

#include "device/row_jobs.h"
#include "device/step.h"

namespace moe {

// Sends one payload (rows or side) of this warp's share of the tokens. `placeOf(destination)` is where a token's row
// begins there. Destinations take turns to be the first, beginning with this rank: in rank order all ranks would store
// to the same one at the same time.
template <class Warp, class PlaceOf>
MOE_LANES void pushPayload(const Warp& warp, const CommView& c, const HandleView& h, const std::uint8_t* from,
                           int tokens, std::uint32_t rowBytes, const Parts& parts, WarpIndex w, PlaceOf placeOf) {
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
        const int turn = (ordinal + c.rank + part.row) % h.destinationCount[part.row];
        return placeOf(h.destinations[part.row * h.slots + turn]) + part.begin;
      });
}

}  // namespace moe
