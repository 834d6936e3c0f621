// The family of the route: one step.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/route/route.h"

namespace moe {

using RouteSteps = StepFamily<Step::route>;

template <>
struct StepCode<Step::route> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    Route<Warp>(warp, p, crew.all).run();
  }
};

}  // namespace moe
