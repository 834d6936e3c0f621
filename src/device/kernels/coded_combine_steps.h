// The family of the combines whose rows travel in a wire format: the steps of ll_steps.h and combine_steps.h again, so
// that those of other combines have no code for it.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/combine/rails.h"
#include "device/protocol/ll/combine.h"

namespace moe {

using CodedCombineSteps =
    StepFamily<Step::llCombineCoded, Step::combineCoded, Step::combineWavesCoded, Step::combineRailsCoded>;

template <>
struct StepCode<Step::llCombineCoded> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    LlCombine<Warp, true>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::combineCoded> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    Combine<1, Warp, true>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::combineWavesCoded> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    Combine<kHtWaves, Warp, true>(warp, p, crew.all).run();
  }
};

template <>
struct StepCode<Step::combineRailsCoded> {
  template <Duty, class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, const Crew& crew) {
    CombineRails<Warp, true>(warp, p, crew.all).run();
  }
};

}  // namespace moe
