// The family of the HT dispatch: in one go, in waves, and over rails.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ht/dispatch_rails.h"

namespace moe {

using HtDispatchSteps = StepFamily<Step::htDispatch, Step::htDispatchWaves, Step::htDispatchRails>;

template <>
struct StepCode<Step::htDispatch> {
  template <Duty kDuty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    HtDispatch<HtKind{1, kDuty}, Warp>(warp, p, crew).run();
  }
};

template <>
struct StepCode<Step::htDispatchWaves> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    HtDispatch<HtKind{kHtWaves}, Warp>(warp, p, crew).run();
  }
};

template <>
struct StepCode<Step::htDispatchRails> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    HtDispatchRails<false, Warp>(warp, p, crew.all).run();
  }
};

}  // namespace moe
