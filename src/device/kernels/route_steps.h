// The family of the route: the step that makes it, and those that tell of it.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/report/describe.h"
#include "device/protocol/report/tally.h"
#include "device/protocol/route/route.h"

namespace moe {

using RouteSteps = StepFamily<Step::route, Step::describe, Step::tally>;

template <>
struct StepCode<Step::route> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    Route<Warp>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::describe> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    Describe<Warp>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::tally> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    if (crew.all.index == 0) Tally<Warp>(warp, p).run();
  }
};

}  // namespace moe
