// Faults that do not end the communicator, because an argument caused them. A handle keeps the first one until its next
// route and delivers nothing meanwhile. docs/internals/protocol.md, "Faults of a handle".
#pragma once

#include "device/protocol/core/session.h"

namespace moe {

// The reason why an operation delivers nothing, if its handle knows it in advance; 0: it delivers. Sending steps call
// this before their warps say that they have begun.
MOE_LANES std::uint32_t knownFault(const AnySession auto& s) {
  const HandleState* state = s.handle.state;
  return s.sends ? state->fault : state->silent;
}
MOE_LANES bool deliversNothing(const AnySession auto& s) {
  return knownFault(s) != 0;
}

// Checks ranks with faultOf(rank). False: one of them has a fault.
template <class FaultOf>
MOE_LANES bool areGood(const AnySession auto& s, Range ranks, FaultOf faultOf) {
  const auto isBad = [&](int i) { return faultOf(ranks.begin + i).fault != Fault::none ? 1 : 0; };
  return s.warp.scanInOrder(ranks.end - ranks.begin, isBad, [](int, int) {}) == 0;
}

// Checks ranks with faultOf(rank). Returns the kind of fault as in a handle's fault word; 0: none.
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
  *h.fault = why;
  h.state->fault = resultOf(why);
  ++h.state->faults;
}

// Keeps the fault of the first rank that has one. One warp of a step calls it, after all warps have called
// deliversNothing().
template <Core Warp, class FaultOf>
MOE_LANES void keepFirstFault(const Warp& warp, const HandleView& h, Range ranks, FaultOf faultOf) {
  const auto isBad = [&](int i) { return faultOf(ranks.begin + i).fault != Fault::none ? 1 : 0; };
  warp.scanInOrder(ranks.end - ranks.begin, isBad, [&](int i, int before) {
    if (before == 0 && isBad(i) != 0) laneKeepFault(h, faultOf(ranks.begin + i));
  });
  warp.publishAll(
      1, [&](int) { return &h.fault->ready; }, h.state->faults);
}
template <Core Warp>
MOE_LANES void keepFault(const Warp& warp, const HandleView& h, const Failure& why) {
  warp.forEach(1, [&](int) { laneKeepFault(h, why); });
  warp.publishAll(
      1, [&](int) { return &h.fault->ready; }, h.state->faults);
}

}  // namespace moe
