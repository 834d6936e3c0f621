// The sender's side of dispatch, for both modes: each row is read once and stored to all ranks that it goes to.
#pragma once

#include "device/fp8_row.h"
#include "device/step.h"

namespace moe {

// Destination number `ordinal` of a token. They take turns to be the first, beginning with this rank: in rank order all
// ranks would store to the same one at the same time.
MOE_LANES const Destination& destinationInTurn(const CommView& c, const HandleView& h, int token, int ordinal) {
  return h.destinations[token * h.slots + (ordinal + c.rank + token) % h.destinationCount[token]];
}

// Sends one payload (rows or side) of this warp's share of some tokens. `placeOf(destination)` is where a token's row
// begins there.
template <class Warp, class PlaceOf>
MOE_LANES void pushPayload(const Warp& warp, const CommView& c, const HandleView& h, const std::uint8_t* from,
                           Range tokens, std::uint32_t rowBytes, const Parts& parts, WarpIndex w, PlaceOf placeOf) {
  const Strided mine = stridedOf(tokens.begin * parts.count, tokens.end * parts.count, w);
  const auto item = [&](int i) { return partOf(parts, rowBytes, mine.at(i)); };
  warp.streamRows(
      mine.count, h.slots,
      [&](int i) {
        const PartOf part = item(i);
        const std::uint8_t* row = from + static_cast<std::int64_t>(part.row) * rowBytes;
        return CopyJob{row + part.begin, part.bytes, h.destinationCount[part.row]};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        return placeOf(destinationInTurn(c, h, part.row, ordinal)) + part.begin;
      });
}

// The same for rows that are cast.
template <class Warp, class PlaceOf>
MOE_LANES void pushCast(const Warp& warp, const CommView& c, const HandleView& h, const DispatchArgs& d, WarpIndex w,
                        PlaceOf placeOf) {
  const CastArgs& cast = d.cast;
  const Strided mine = stridedOf(0, d.tokens * d.parts.count, w);
  const auto item = [&](int i) { return partOf(d.parts, static_cast<std::uint32_t>(cast.elements), mine.at(i)); };
  warp.castRows(
      mine.count, cast.rowType, cast.type,
      [&](int i) {
        const PartOf part = item(i);
        const std::int64_t first = std::int64_t{part.row} * cast.elements + part.begin;
        return CastJob{d.rows + first * elementBytes(cast.rowType), static_cast<int>(part.bytes),
                       h.destinationCount[part.row]};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        std::uint8_t* row = placeOf(destinationInTurn(c, h, part.row, ordinal));
        const std::int64_t tile = part.begin / kCastTileElements;
        return CastSink{row + part.begin, row + cast.elements + tile * castScaleBytes(cast.type)};
      });
}

}  // namespace moe
