// The sender's side of dispatch, for both modes: each row is read once and stored to all ranks of the domain that it
// goes to and, if it goes to others too, to this rank's own window, from where it is put.
#pragma once

#include "device/protocol/expert_waves.h"
#include "device/rows/fp8_row.h"

namespace moe {

// Where the row of a token goes, number `ordinal` of h.slots places: to placeOf(destination), to outOf(token) for the
// first destination in another domain, or nowhere. Destinations take turns to be the first: in rank order all ranks
// would store to the same one at the same time.
template <Moves Warp, class Rows, class PlaceOf, class OutOf>
MOE_LANES Sink placeInTurn(const Warp& warp, const CommView& c, const HandleView& h, Rows rows, int token, int ordinal,
                           PlaceOf placeOf, OutOf outOf) {
  constexpr Sink kNowhere{};
  const Destination* list = h.destinations + std::int64_t{token} * h.slots;
  const int at = (ordinal + c.rank + token) % h.slots;
  const Destination to = list[at];
  if (to.rank == kNoRank || !rows.takes(to)) return kNowhere;
  if (!isRemote(warp, c, to.rank)) return placeOf(to);
  return at == 0 || c.inDomain(list[at - 1].rank) ? outOf(token) : kNowhere;
}

// Sends one payload (rows or side) of this warp's share of some tokens: those `rows` that go now.
template <Moves Warp, class Rows, class PlaceOf, class OutOf>
MOE_LANES void pushPayload(const Warp& warp, const CommView& c, const HandleView& h, const std::uint8_t* from,
                           Range tokens, Rows rows, std::uint32_t rowBytes, const Parts& parts, WarpIndex w,
                           PlaceOf placeOf, OutOf outOf) {
  const Strided mine = stridedOf(tokens.begin * parts.count, tokens.end * parts.count, w);
  const auto item = [&](int i) { return partOf(parts, rowBytes, mine.at(i)); };
  warp.streamRows(
      mine.count, h.slots,
      [&](int i) {
        const PartOf part = item(i);
        const std::uint8_t* row = from + static_cast<std::int64_t>(part.row) * rowBytes;
        const bool goes = rows.any(part.row);
        return CopyJob{row + part.begin, goes ? part.bytes : 0, goes ? h.slots : 0};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        Sink to = placeInTurn(warp, c, h, rows, part.row, ordinal, placeOf, outOf);
        if (to.row != nullptr) to.row += part.begin;
        return to;
      });
}

// Both payloads at once: the side payload goes with the first part of its row.
template <Moves Warp, class Rows, class PlaceOf, class OutOf>
MOE_LANES void pushPairs(const Warp& warp, const CommView& c, const HandleView& h, const DispatchArgs& d, Range tokens,
                         Rows rows, WarpIndex w, PlaceOf placeOf, OutOf outOf) {
  const Strided mine = stridedOf(tokens.begin * d.parts.count, tokens.end * d.parts.count, w);
  const auto item = [&](int i) { return partOf(d.parts, d.rowBytes, mine.at(i)); };
  warp.streamPairs(
      mine.count, h.slots,
      [&](int i) {
        const PartOf part = item(i);
        const bool goes = rows.any(part.row);
        const CopyJob row{d.rows + std::int64_t{part.row} * d.rowBytes + part.begin, goes ? part.bytes : 0,
                          goes ? h.slots : 0};
        return PairJob{row, d.side + std::int64_t{part.row} * d.sideBytes, part.begin == 0 ? d.sideBytes : 0};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        Sink to = placeInTurn(warp, c, h, rows, part.row, ordinal, placeOf, outOf);
        if (to.row != nullptr) to.row += part.begin;
        return to;
      });
}

// Rows that are cast.
template <Moves Warp, class PlaceOf, class OutOf>
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
        return CastJob{d.rows + first * elementBytes(cast.rowType), static_cast<int>(part.bytes), h.slots};
      },
      [&](int i, int ordinal) {
        const PartOf part = item(i);
        std::uint8_t* row = placeInTurn(warp, c, h, AllRows{}, part.row, ordinal, placeOf, outOf).row;
        if (row == nullptr) return CastSink{nullptr, nullptr};
        const std::int64_t tile = part.begin / kCastTileElements;
        return CastSink{row + part.begin, row + cast.elements + tile * castScaleBytes(cast.type)};
      });
}

}  // namespace moe
