// The family of the combine that reads rows where they are: in one go, in waves, and over rails.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/combine/rails.h"

namespace moe {

using CombineSteps = StepFamily<Step::combine, Step::combineWaves, Step::combineRails>;

template <>
struct StepCode<Step::combine> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    Combine<1, Warp>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::combineWaves> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    Combine<kHtWaves, Warp>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::combineRails> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    CombineRails<Warp>(warp, p, crew.all).run();
  }
};

}  // namespace moe
