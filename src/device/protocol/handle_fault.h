// Faults that do not end the communicator: what an argument did. A handle keeps its first one until its next route, and
// delivers nothing meanwhile. docs/internals/protocol.md, "Faults of a handle".
#pragma once

#include "device/protocol/session.h"

namespace moe {

// One warp, when all warps of this rank have read the handle's word.
MOE_LANES void keepFault(const AnySession auto& s, const Failure& why) {
  HandleState* state = s.handle.state;
  HostCounts* host = s.handle.hostCounts;
  if (state->fault != 0) return;
  s.warp.forEach(1, [&](int) {
    host->fault = why;
    state->fault = resultOf(why.fault);
    ++state->faults;
  });
  s.publish(&host->fault.ready, state->faults);
}

}  // namespace moe
