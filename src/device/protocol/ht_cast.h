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

// Beside the output record, and told with it.
MOE_LANES void offerScales(const Moving auto& s) {
  const CastArgs& cast = s.p.dispatch.cast;
  const ScaleRecord mine{cast.outScalesOffset, cast.grid};
  s.warp.forEach(s.comm.domainSize, [&](int i) {
    s.warp.laneStore(scaleRecord(s.comm, s.comm.domainFirst + i, s.epoch, s.comm.rank), mine);
  });
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
