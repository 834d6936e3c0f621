// The sender's side of dispatch, for both modes: each row is read once and stored to all ranks of the domain that it
// goes to and, if it goes to others too, to this rank's own window, from where it is put.
#pragma once

#include "device/fp8_row.h"
#include "device/step.h"

namespace moe {

// Destination number `ordinal` of a token in this domain. They take turns to be the first, beginning with this rank: in
// rank order all ranks would store to the same one at the same time.
MOE_LANES const Destination& destinationInTurn(const CommView& c, const HandleView& h, int token, int ordinal) {
  return h.destinations[token * h.slots + (ordinal + c.rank + token) % h.nearCount[token]];
}

// How many places a token's row is stored to; the last is this rank's own window, if it goes to other domains.
template <class Warp>
MOE_LANES int placesOf(const Warp& warp, const CommView& c, const HandleView& h, int token) {
  if (!split(warp, c)) return h.nearCount[token];
  return h.nearCount[token] + (h.destinationCount[token] > h.nearCount[token] ? 1 : 0);
}
// Where the row of a token begins at place `ordinal`: placeOf(destination), or outOf(token).
template <class Warp, class PlaceOf, class OutOf>
MOE_LANES std::uint8_t* placeInTurn(const Warp& warp, const CommView& c, const HandleView& h, int token, int ordinal,
                                    PlaceOf placeOf, OutOf outOf) {
  if (split(warp, c) && ordinal == h.nearCount[token]) return outOf(token);
  return placeOf(destinationInTurn(c, h, token, ordinal));
}

// Sends one payload (rows or side) of this warp's share of some tokens.
template <class Warp, class PlaceOf, class OutOf>
MOE_LANES void pushPayload(const Warp& warp, const CommView& c, const HandleView& h, const std::uint8_t* from,
                           Range tokens, std::uint32_t rowBytes, const Parts& parts, WarpIndex w, PlaceOf placeOf,
                           OutOf outOf) {
  const Strided mine = stridedOf(tokens.begin * parts.count, tokens.end * parts.count, w);
  const auto item = [&](int i) { return partOf(parts, rowBytes, mine.at(i)); };
  warp.streamRows(
      mine.count, h.slots,
      [&](int i) {
        const PartOf part = item(i);
        const std::uint8_t* row = from + static_cast<std::int64_t>(part.row) * rowBytes;
        return CopyJob{row + part.begin, part.bytes, placesOf(warp, c, h, part.row)};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        return placeInTurn(warp, c, h, part.row, ordinal, placeOf, outOf) + part.begin;
      });
}

// The same for rows that are cast.
template <class Warp, class PlaceOf, class OutOf>
MOE_LANES void pushCast(const Warp& warp, const CommView& c, const HandleView& h, const DispatchArgs& d, WarpIndex w,
                        PlaceOf placeOf, OutOf outOf) {
  const CastArgs& cast = d.cast;
  const Strided mine = stridedOf(0, d.tokens * d.parts.count, w);
  const auto item = [&](int i) { return partOf(d.parts, static_cast<std::uint32_t>(cast.elements), mine.at(i)); };
  warp.castRows(
      mine.count, cast.rowType, cast.type,
      [&](int i) {
        const PartOf part = item(i);
        const std::int64_t first = std::int64_t{part.row} * cast.elements + part.begin;
        return CastJob{d.rows + first * elementBytes(cast.rowType), static_cast<int>(part.bytes),
                       placesOf(warp, c, h, part.row)};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        std::uint8_t* row = placeInTurn(warp, c, h, part.row, ordinal, placeOf, outOf);
        const std::int64_t tile = part.begin / kCastTileElements;
        return CastSink{row + part.begin, row + cast.elements + tile * castScaleBytes(cast.type)};
      });
}

}  // namespace moe
