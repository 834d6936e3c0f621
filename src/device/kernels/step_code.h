// Maps a step's name to its code. The header of each family defines the StepCode of its steps; run_step.h includes all
// families. A file that needs one family includes no other, and need not be compiled again when another one changes.
#pragma once

#include <type_traits>
#include <utility>

#include "device/policy/contract.h"
#include "device/view/steps.h"

namespace moe {

// static void run(warp, params, WarpIndex); divided steps also have runPart<kDuty>(warp, params, crew)
template <Step kStep>
struct StepCode;

// Calls use(tag) with the step as a compile-time value, decltype(tag)::value. False: the step is of another family.
template <StepFamily kFamily, class Use>
bool withStep(Step step, Use use) {
  const auto inFamily = [&](auto tag) {
    constexpr Step kStep = decltype(tag)::value;
    if constexpr (rowOf(kStep).family == kFamily) {
      if (step == kStep) return use(tag), true;
    }
    return false;
  };
  return [&]<std::size_t... kIndex>(std::index_sequence<kIndex...>) {
    return (... || inFamily(std::integral_constant<Step, static_cast<Step>(kIndex)>{}));
  }
  (std::make_index_sequence<kStepCount>{});
}

// Runs a step whose name is known only at run time. `movers`: in a divided step, the first `movers` warps move rows and
// the others describe them; 0: all warps do both. False: the step is of another family.
template <StepFamily kFamily, class Warp>
bool runNamedStep(const Warp& warp, Step step, const StepParams& p, WarpIndex w, int movers) {
  return withStep<kFamily>(step, [&](auto tag) {
    using Code = StepCode<decltype(tag)::value>;
    if constexpr (rowOf(decltype(tag)::value).isDivided()) {
      const int others = w.count - movers;
      if (w.index < movers) return Code::template runPart<Duty::move>(warp, p, {w, {w.index, movers, movers}});
      if (movers > 0) {
        return Code::template runPart<Duty::describe>(warp, p, {w, {w.index - movers, others, others}});
      }
    }
    Code::run(warp, p, w);
  });
}

}  // namespace moe
