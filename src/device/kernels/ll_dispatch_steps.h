// The code of the LL dispatches: of handles that are routed, or with the route inside.
#pragma once

#include "device/kernels/step_code.h"
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

}  // namespace moe
