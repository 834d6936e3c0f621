// What a rank does of a dispatch that routes when something is wrong with what the ranks have told, or with its output:
// code of its own, as it is seldom needed. docs/internals/protocol.md, "Faults of a handle".
#pragma once

#include "device/protocol/ll/taken.h"

namespace moe {

// All warps, each for its share of tokens. The first one also keeps the fault.
template <Moves Warp>
MOE_SELDOM void llMakeEmptyRoute(Warp warp, const StepParams& p, WarpIndex w, Operation operation) {
  const Session<Warp> s(warp, p, w, operation);
  emptyTokens(s);
  if (w.index != 0) return;
  emptyCounts(s);
  int refuses = 0;  // of several ranks that refuse, all name the lowest
  MOE_ROLLED
  while ((warp.laneLoad(llToldBy<Quad>(p.comm, p.handle, refuses)).w & kRouteRefused) == 0) ++refuses;
  keepFault(warp, p.handle, faultTold(p.handle, refuses, warp.laneLoad(llToldBy<Quad>(p.comm, p.handle, refuses) + 2)));
  tellRows(s, 0, true);
}

// One warp, when the handle has the route: why nothing was delivered.
template <Moves Warp>
MOE_SELDOM void llKeepFault(Warp warp, const StepParams& p, std::int64_t layoutRows) {
  const DispatchArgs& d = p.dispatch;
  if (layoutRows > d.capacity) {
    return keepFault(warp, p.handle,
                     tooLittle(Fault::capacity, Phase::dispatchOutput, p.comm.rank, d.capacity, layoutRows));
  }
  keepFirstFault(warp, p.handle, allRanks(p.comm), [&](int from) -> Failure {
    const std::uint64_t theirs = llTermsTold(warp.laneLoad(llToldBy<Quad>(p.comm, p.handle, from) + 1));
    return theirs == d.terms ? Failure{} : disagreement(Phase::dispatchRows, from, d.terms, theirs);
  });
}

}  // namespace moe
