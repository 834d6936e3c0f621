// The family of LL: dispatches through slots, of handles that are routed or with the route inside, and the combine
// whose rows land at their owners.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ll/combine.h"
#include "device/protocol/ll/dispatch.h"
#include "device/protocol/ll/route_dispatch.h"

namespace moe {

using LlSteps = StepFamily<Step::llDispatch, Step::llRouteDispatch, Step::llCombine>;

template <>
struct StepCode<Step::llDispatch> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    LlDispatch<Warp>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::llRouteDispatch> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    llRouteDispatch(warp, p, crew.all);
  }
};

template <>
struct StepCode<Step::llCombine> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    LlCombine<Warp>(warp, p, crew.all).run();
  }
};

}  // namespace moe
