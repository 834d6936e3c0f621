// From a step's name to its code. The header of each family specialises StepCode for its steps, and run_step.h knows
// all families; who needs one family includes no other, and is compiled again for no other.
#pragma once

#include <type_traits>

#include "device/policy/contract.h"
#include "device/view/step_names.h"

namespace moe {

// static void run<kDuty>(warp, params, crew)
template <Step kStep>
struct StepCode;

template <Step kStep, Duty kDuty = Duty::all, class Warp>
MOE_LANES void runStep(const Warp& warp, const StepParams& p, const Crew& crew) {
  StepCode<kStep>::template run<kDuty>(warp, p, crew);
}

template <Step... kNames>
struct StepFamily {};

// use(tag) with the step as a compile-time value, decltype(tag)::value. False if the step is of another family.
template <Step... kNames, class Use>
bool withStep(StepFamily<kNames...>, Step step, Use use) {
  return (... || (step == kNames && (use(std::integral_constant<Step, kNames>{}), true)));
}

// A step whose name is known at run time only. `movers`: of a step that can be divided, the first so many warps move
// rows, the others describe them; 0: all warps do all. False if the step is of another family.
template <class Family, class Warp>
bool runNamedStep(Family family, const Warp& warp, Step step, const StepParams& p, WarpIndex w, int movers) {
  return withStep(family, step, [&](auto tag) {
    constexpr Step kStep = decltype(tag)::value;
    if constexpr (isDivided(kStep)) {
      if (w.index < movers) return runStep<kStep, Duty::move>(warp, p, {w, {w.index, movers, movers}});
      if (movers > 0) {
        const int others = w.count - movers;
        return runStep<kStep, Duty::describe>(warp, p, {w, {w.index - movers, others, others}});
      }
    }
    runStep<kStep>(warp, p, {w, w});
  });
}

}  // namespace moe
