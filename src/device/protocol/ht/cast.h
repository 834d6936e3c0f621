// What an HT dispatch needs to cast rows on their way, or to bring payloads: where each rank wants its scales and its
// payloads, and the places of codes, scales and side payload. In an output they lie apart; in the staging area, and on
// the rails, a row is one piece, as in LL. Flags: README.md, "HT dispatch that casts".
#pragma once

#include "device/protocol/core/payloads.h"
#include "device/protocol/core/push.h"

namespace moe {

// Of scales, or of payload `which` - 1.
MOE_LANES ScaleRecord* scaleRecord(const CommView& c, int rank, std::uint64_t epoch, int from, int which = 0) {
  return c.in<ScaleRecord>(rank, c.at.htScales) +
         (std::int64_t{parityOf(epoch) * c.nranks + from} * kScaleRecords + which);
}

// Where the rows of experts of rank `from` begin: see ScaleRecord.
MOE_LANES std::int32_t* scaleOffsets(const CommView& c, int rank, std::uint64_t epoch, int from) {
  const std::int64_t first = std::int64_t{parityOf(epoch) * c.nranks + from} * c.at.scaleOffsetsStride;
  return c.in<std::int32_t>(rank, c.at.htScaleOffsets) + first;
}

// Whether the scales of each row are one piece of the output that whole Quads fill.
MOE_LANES bool scalesAreRows(const CastArgs& cast) {
  return cast.grid.blocked == 0 && cast.grid.wordStride == 1 && cast.words % 4 == 0 &&
         reinterpret_cast<std::uintptr_t>(cast.outScales) % sizeof(Quad) == 0;
}

// Beside the output record, and told with it.
MOE_LANES void offerScales(const Moving auto& s) {
  const CastArgs& cast = s.p.dispatch.cast;
  const PayloadArgs& payloads = s.p.dispatch.payloads;
  s.warp.forEach(s.comm.domainSize * (1 + payloads.count), [&](int i) {
    const int which = i / s.comm.domainSize, rank = s.comm.domainFirst + i % s.comm.domainSize;
    ScaleRecord mine{cast.outScalesOffset, cast.grid, 0, 0};
    if (which > 0) {
      const PayloadWords& words = payloads.payload[which - 1];
      mine = {words.outOffset, words.grid, words.first, words.end};
    }
    s.warp.laneStore(scaleRecord(s.comm, rank, s.epoch, s.comm.rank, which), mine);
  });
  const ScaleGrid* ofExperts = gridOfExperts(s.p.dispatch);
  const int experts = s.p.dispatch.staged != 0 || ofExperts == nullptr ? 0 : ofExperts->experts;
  s.warp.forEach(s.comm.domainSize * experts, [&](int i) {
    const int e = i / s.comm.domainSize, rank = s.comm.domainFirst + i % s.comm.domainSize;
    s.warp.laneStore(scaleOffsets(s.comm, rank, s.epoch, s.comm.rank) + e, s.handle.arriving.expertOffsets[e]);
  });
}

// Where the scales of a row go, or payload `which` - 1, that is stored straight to its place.
MOE_LANES WordPlace wordPlace(const Moving auto& s, const Destination& to, int which) {
  const ScaleRecord record = s.warp.laneLoad(scaleRecord(s.comm, s.comm.rank, s.epoch, to.rank, which));
  const std::int32_t* offsets = scaleOffsets(s.comm, s.comm.rank, s.epoch, to.rank);
  const std::int64_t start = record.grid.start(to.row, [&](int e) { return s.warp.laneLoad(offsets + e); });
  return {s.comm.template in<std::uint32_t>(to.rank, record.scales) + start, record.grid.wordStride, record.first,
          record.end};
}
MOE_LANES CastSink scalePlace(const Moving auto& s, const Destination& to) {
  const WordPlace words = wordPlace(s, to, 0);
  return {nullptr, reinterpret_cast<std::uint8_t*>(words.at), words.wordStride};
}

// Stores a piece of a row's payloads to its places at a rank of this domain: to the row's side payload if that is
// given, else straight to its places.
MOE_LANES void laneStorePiece(const Moving auto& s, const Destination& to, std::uint8_t* side, int piece,
                              const Quad& quad) {
  const auto store = [&](auto* at, const auto& value) { s.warp.laneStore(at, value); };
  if (side != nullptr) return store(reinterpret_cast<Quad*>(side) + piece, quad);
  laneScatter(
      s.p.dispatch.payloads, piece, quad, [&](int i) { return wordPlace(s, to, 1 + i); }, store);
}

// Where rows that are cast go.
template <class Dispatch>
struct HtCastPlaces {
  static constexpr bool kScatters = true;
  const Dispatch& dispatch;

  MOE_LANES CastSink place(const Destination& to) const { return dispatch.castPlace(to); }
  MOE_LANES CastSink out(int token) const {
    return castPiece(dispatch.railPlace(token).row, dispatch.s.p.dispatch.cast.codeBytes);
  }
};

// Where side payload goes without its rows, or rows that are not cast without their side payload.
template <class Dispatch>
struct HtPiecePlaces {
  const Dispatch& dispatch;
  bool side;

  MOE_LANES Sink place(const Destination& to) const { return pieceOf(dispatch.finalPlace(to)); }
  MOE_LANES Sink out(int token) const { return pieceOf(dispatch.railPlace(token)); }

 private:
  MOE_LANES Sink pieceOf(const Sink& place) const { return {side ? place.side : place.row, nullptr, place.here}; }
};

}  // namespace moe
