// The sender's side of dispatch, for both modes. Each row is read once and stored to all ranks of the domain that it
// goes to. If it goes to other domains too, it is also stored to this rank's own window, from where it is put.
#pragma once

#include "device/protocol/core/expert_waves.h"
#include "device/rows/cast_row.h"

namespace moe {

// Destinations that an earlier route has stored in the handle.
struct RoutedLists {
  const HandleView& h;

  MOE_LANES Destination of(int token, int ordinal) const {
    return h.sent.destinations[std::int64_t{token} * h.destinationsMax + ordinal];
  }
};

// Where the rows of tokens go. `Rows` selects the rows that go now: any(token), takes(destination). `Places` gives the
// place of a row in this domain, place(destination), and the place from which it is put to other domains, out(token). A
// place is a Sink or, for cast rows, a CastSink. `Lists` has the destinations of each token in the order of
// Destination: of(token, ordinal).
template <class S, class Rows, class Places, class Lists = RoutedLists>
struct Outgoing {
  using Placed = Places;
  using Place = decltype(std::declval<const Places&>().out(0));

  const S& s;
  Rows rows;
  Places places;
  Lists lists;

  MOE_LANES int placesMax() const { return s.handle.destinationsMax; }
  MOE_LANES bool goes(int token) const { return rows.any(token); }

  // Place number `ordinal` of placesMax(). It belongs to a destination in this domain or, for the first destination in
  // another domain, to the puts. Otherwise there is no place. The order of destinations rotates from rank to rank and
  // token to token. In rank order, all ranks would store to the same destination at the same time.
  MOE_LANES Place place(int token, int ordinal) const {
    constexpr Place kNowhere{};
    const int at = (ordinal + s.comm.rank + token) % s.handle.destinationsMax;
    const Destination to = lists.of(token, at);
    if (to.rank == kNoRank || !rows.takes(to)) return kNowhere;
    if (!s.isRemote(to.rank)) return places.place(to);
    return at == 0 || s.comm.inDomain(lists.of(token, at - 1).rank) ? places.out(token) : kNowhere;
  }
};

// One payload (rows or side) for this warp's share of tokens: a list for streamRows.
template <class To, class Share = PartShare>
struct PayloadOut {
  const To& to;
  const std::uint8_t* from;
  Share share;

  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int sinksMax() const { return to.placesMax(); }
  MOE_LANES CopyJob job(int i) const {
    const PartOf part = share.at(i);
    const std::uint8_t* row = from + static_cast<std::int64_t>(part.row) * share.rowBytes;
    const bool goes = to.goes(part.row);
    return {row + part.begin, goes ? part.bytes : 0, goes ? to.placesMax() : 0};
  }
  MOE_LANES Sink sink(int i, int ordinal) const {
    const PartOf part = share.at(i);
    Sink place = to.place(part.row, ordinal);
    if (place.row != nullptr) place.row += part.begin;
    return place;
  }
};

// Both payloads at once. The side payload is copied with the first part of its row.
template <class To>
struct RowsAndSidesOut {
  static constexpr bool kSides = true;
  PayloadOut<To> rows;
  const DispatchArgs& d;

  MOE_LANES int count() const { return rows.count(); }
  MOE_LANES int sinksMax() const { return rows.sinksMax(); }
  MOE_LANES CopyJob job(int i) const {
    const PartOf part = rows.share.at(i);
    CopyJob job = rows.job(i);
    job.side = d.side + std::int64_t{part.row} * d.sideBytes;
    job.sideBytes = part.begin == 0 ? d.sideBytes : 0;
    return job;
  }
  MOE_LANES Sink sink(int i, int ordinal) const { return rows.sink(i, ordinal); }
};

// The place of a cast row that is one piece of memory: its codes, then its scales.
MOE_LANES CastSink castPiece(std::uint8_t* row, std::uint32_t codeBytes) {
  return {row, row + codeBytes, 1};
}

// Rows that are cast: a list for castRows. Parts divide their elements.
template <class To, class Share = PartShare>
struct CastOut {
  static constexpr bool kScatters = To::Placed::kScatters;
  const To& to;
  const DispatchArgs& d;
  Share share;

  MOE_LANES int count() const { return share.count(); }
  MOE_LANES int rowType() const { return d.cast.rowType; }
  MOE_LANES CastRule rule() const { return {d.cast.type, d.cast.inputScale, d.cast.globalScale, d.cast.rowWeights}; }
  MOE_LANES CastJob job(int i) const {
    const PartOf part = share.at(i);
    const std::int64_t first = std::int64_t{part.row} * d.cast.elements + part.begin;
    const int elements = to.goes(part.row) ? static_cast<int>(part.bytes) : 0;
    const float weight = d.cast.rowWeights != nullptr ? d.cast.rowWeights[part.row] : 1.0f;
    return {d.rows + first * elementBytes(d.cast.rowType), elements, to.placesMax(), weight};
  }
  MOE_LANES CastSink sink(int i, int ordinal) const {
    const PartOf part = share.at(i);
    CastSink place = to.place(part.row, ordinal);
    if (place.codes == nullptr) return place;
    const int type = d.cast.type;
    const std::int64_t tile = part.begin / kCastTileElements;
    place.codes += castCodeBytes(type, static_cast<int>(part.begin));
    place.scales += tile * castScaleBytes(type) * place.wordStride;
    return place;
  }
};

}  // namespace moe
