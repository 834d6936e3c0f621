// The family of the HT dispatch: in one go, in waves, and over rails.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ht_dispatch_rails.h"

namespace moe {

using HtDispatchSteps = StepFamily<Step::htDispatch, Step::htDispatchWaves, Step::htDispatchRails>;

template <>
struct StepCode<Step::htDispatch> {
  template <Duty kDuty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    htDispatch<1, kDuty>(warp, p, crew);
  }
};

template <>
struct StepCode<Step::htDispatchWaves> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    htDispatch<kHtWaves, Duty::all>(warp, p, crew);
  }
};

template <>
struct StepCode<Step::htDispatchRails> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    htDispatchRails(warp, p, crew.all);
  }
};

}  // namespace moe
