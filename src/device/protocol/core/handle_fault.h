// Faults that do not end the communicator: what an argument did. A handle keeps its first one until its next route, and
// delivers nothing meanwhile. docs/internals/protocol.md, "Faults of a handle".
#pragma once

#include "device/protocol/core/session.h"

namespace moe {

// Why an operation delivers nothing, as far as its handle knows before; 0: it delivers. Sending steps ask before their
// warps say that they have begun.
MOE_LANES std::uint32_t knownFault(const AnySession auto& s) {
  const HandleState* state = s.handle.state;
  return s.sends ? state->fault : state->silent;
}
MOE_LANES bool deliversNothing(const AnySession auto& s) {
  return knownFault(s) != 0;
}

// Looks at ranks, by faultOf(rank); false if something is wrong with one.
template <class FaultOf>
MOE_LANES bool areGood(const AnySession auto& s, Range ranks, FaultOf faultOf) {
  const auto isBad = [&](int i) { return faultOf(ranks.begin + i).fault != Fault::none ? 1 : 0; };
  return s.warp.scanInOrder(ranks.end - ranks.begin, isBad, [](int, int) {}) == 0;
}

// The same, and what kind of thing is wrong, as a handle's fault word says it: 0, nothing.
template <class FaultOf>
MOE_LANES std::uint32_t faultAmong(const AnySession auto& s, Range ranks, FaultOf faultOf) {
  constexpr int kArgument = 1 << 16;
  const auto kindOf = [&](int i) {
    const Failure why = faultOf(ranks.begin + i);
    return why.fault == Fault::none ? 0 : resultOf(why) == kBadArgument ? kArgument : 1;
  };
  const int kinds = s.warp.scanInOrder(ranks.end - ranks.begin, kindOf, [](int, int) {});
  return kinds >= kArgument ? kBadArgument : kinds > 0 ? kBadUsage : 0;
}

MOE_LANES void laneKeepFault(const HandleView& h, const Failure& why) {
  if (h.state->fault != 0) return;
  h.hostCounts->fault = why;
  h.state->fault = resultOf(why);
  ++h.state->faults;
}

// Keeps what is wrong with the first such rank. One warp of a step, when all have asked deliversNothing().
template <Core Warp, class FaultOf>
MOE_LANES void keepFirstFault(const Warp& warp, const HandleView& h, Range ranks, FaultOf faultOf) {
  const auto isBad = [&](int i) { return faultOf(ranks.begin + i).fault != Fault::none ? 1 : 0; };
  warp.scanInOrder(ranks.end - ranks.begin, isBad, [&](int i, int before) {
    if (before == 0 && isBad(i) != 0) laneKeepFault(h, faultOf(ranks.begin + i));
  });
  warp.publishAll(
      1, [&](int) { return &h.hostCounts->fault.ready; }, h.state->faults);
}
template <Core Warp>
MOE_LANES void keepFault(const Warp& warp, const HandleView& h, const Failure& why) {
  warp.forEach(1, [&](int) { laneKeepFault(h, why); });
  warp.publishAll(
      1, [&](int) { return &h.hostCounts->fault.ready; }, h.state->faults);
}

}  // namespace moe
