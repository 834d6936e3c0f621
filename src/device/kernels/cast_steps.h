// The family of the dispatches that cast: in one go, in waves, and over rails. They are steps of their own, so that
// kernels without a cast carry nothing of it.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ht/dispatch_rails.h"

namespace moe {

using CastSteps = StepFamily<Step::htCast, Step::htCastWaves, Step::htCastRails>;

template <>
struct StepCode<Step::htCast> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    HtDispatch<HtKind{1, Duty::all, true}, Warp>(warp, p, crew).run();
  }
};

template <>
struct StepCode<Step::htCastWaves> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    HtDispatch<HtKind{kHtWaves, Duty::all, true}, Warp>(warp, p, crew).run();
  }
};

template <>
struct StepCode<Step::htCastRails> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    HtDispatchRails<true, Warp>(warp, p, crew.all).run();
  }
};

}  // namespace moe
