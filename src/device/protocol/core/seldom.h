// Code that a step seldom runs, kept in separate functions.
//
// A kernel needs as many registers as its most demanding path. Everything that such a path may need stays in registers
// during the loops before it. A function that is not inlined avoids this: its caller keeps only the arguments. But a
// step's object cannot be an argument, because an object with an address lies in memory, in the loops too. The parts of
// the object can be arguments: the policy, the parameters, the warp and the operation. So the function makes the object
// again from its parts. The operation is passed because the state from which a step finds its operation may have
// changed by then.
//
// The same holds for code that needs no object (MOE_SELDOM functions of a policy and the parameters), and for a session
// that is copied out of another object so that the compiler keeps it in registers.
#pragma once

#include "device/protocol/core/session.h"

namespace moe {

template <class Object, class Do, Core Warp, class... Parts>
MOE_SELDOM auto madeAgain(Warp warp, const StepParams& p, Parts... parts) {
  return Do{}(Object(warp, p, parts...));
}

// Does `what` with a new Object, made of the session's policy and parameters and of `parts`. `what` captures nothing.
template <class Object, class Do, class... Parts>
MOE_LANES auto seldom(const auto& s, Do, const Parts&... parts) {
  return madeAgain<Object, Do>(s.warp, s.p, parts...);
}

}  // namespace moe
