// What a step seldom does, as code of its own.
//
// A kernel has as many registers as its hungriest path, and whatever that path may need stays in registers through the
// loops before it. A function that is not inlined ends this: its caller keeps what it passes, and no more. But a step's
// object cannot be passed, since an object with an address lies in memory, for the loops too. What it is made of can:
// the policy, the parameters, the warp, the operation. So the object is made again on the other side. It is told which
// operation it belongs to, because what a step finds that out from may have changed by then.
//
// The same holds for what needs no object (MOE_SELDOM functions of a policy and the parameters), and for a session that
// is copied out of another object so that the compiler keeps it in registers.
#pragma once

#include "device/protocol/core/session.h"

namespace moe {

template <class Object, class Do, Core Warp, class... Parts>
MOE_SELDOM auto madeAgain(Warp warp, const StepParams& p, Parts... parts) {
  return Do{}(Object(warp, p, parts...));
}

// Does `what` with an Object like the one that asks, made of a session's policy and parameters and of `parts`. `what`
// captures nothing.
template <class Object, class Do, class... Parts>
MOE_LANES auto seldom(const auto& s, Do, const Parts&... parts) {
  return madeAgain<Object, Do>(s.warp, s.p, parts...);
}

}  // namespace moe
