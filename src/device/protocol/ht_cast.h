// What an HT dispatch needs to cast rows on their way: where each rank wants its scales, and the places of codes,
// scales and side payload. In an output they lie apart; in the staging area, and on the rails, a row is one piece, as
// in LL. Flags: docs/internals/protocol.md, "HT dispatch that casts".
#pragma once

#include "device/protocol/deliver.h"
#include "device/protocol/push.h"

namespace moe {

MOE_LANES ScaleRecord* scaleRecord(const CommView& c, int rank, std::uint64_t epoch, int from) {
  return c.in<ScaleRecord>(rank, c.at.htScales) + (parityOf(epoch) * c.nranks + from);
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
  const ScaleRecord mine{cast.outScalesOffset, cast.grid};
  s.warp.forEach(s.comm.domainSize, [&](int i) {
    s.warp.laneStore(scaleRecord(s.comm, s.comm.domainFirst + i, s.epoch, s.comm.rank), mine);
  });
  const int experts = s.p.dispatch.staged != 0 ? 0 : cast.grid.experts;
  s.warp.forEach(s.comm.domainSize * experts, [&](int i) {
    const int e = i / s.comm.domainSize, rank = s.comm.domainFirst + i % s.comm.domainSize;
    s.warp.laneStore(scaleOffsets(s.comm, rank, s.epoch, s.comm.rank) + e, s.handle.arriving.expertOffsets[e]);
  });
}

// Where the scales of a row go that is stored straight to its place.
MOE_LANES CastSink scalePlace(const Moving auto& s, const Destination& to) {
  const ScaleRecord record = s.warp.laneLoad(scaleRecord(s.comm, s.comm.rank, s.epoch, to.rank));
  const std::int32_t* offsets = scaleOffsets(s.comm, s.comm.rank, s.epoch, to.rank);
  const std::int64_t start = record.grid.start(to.row, [&](int e) { return s.warp.laneLoad(offsets + e); });
  auto* words = s.comm.template in<std::uint32_t>(to.rank, record.scales) + start;
  return {nullptr, reinterpret_cast<std::uint8_t*>(words), record.grid.wordStride};
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

// Where side payload goes without its rows.
template <class Dispatch>
struct HtSidePlaces {
  const Dispatch& dispatch;

  MOE_LANES Sink place(const Destination& to) const { return sideOf(dispatch.finalPlace(to)); }
  MOE_LANES Sink out(int token) const { return sideOf(dispatch.railPlace(token)); }

 private:
  static MOE_LANES Sink sideOf(const Sink& place) { return {place.side, nullptr, place.here}; }
};

}  // namespace moe
