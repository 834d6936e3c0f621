// The code of the LL steps: dispatches of routed handles, dispatches that route, and combines whose rows land at their
// owners, plain or in a wire format.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ll/combine.h"
#include "device/protocol/ll/dispatch.h"
#include "device/protocol/ll/route_dispatch.h"

namespace moe {

template <>
struct StepCode<Step::llDispatch> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlDispatch<Warp>(warp, p, w).run();
  }
};

template <>
struct StepCode<Step::llRouteDispatch> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    llRouteDispatch(warp, p, w);
  }
};

template <Step kStep>
requires(rowOf(kStep).lands) struct StepCode<kStep> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlCombine<Warp, rowOf(kStep).coded()>(warp, p, w).run();
  }
};

}  // namespace moe
