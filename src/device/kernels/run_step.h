// From a step's name to its code: the only file that knows all protocols.
#pragma once

#include <type_traits>

#include "device/protocol/combine_rails.h"
#include "device/protocol/ht_dispatch_rails.h"
#include "device/protocol/ll_combine.h"
#include "device/protocol/ll_dispatch.h"
#include "device/protocol/route/route.h"
#include "device/view/step_names.h"

namespace moe {

template <Step kStep, Duty kDuty = Duty::all, class Warp>
MOE_LANES void runStep(const Warp& warp, const StepParams& p, const Crew& crew) {
  const WarpIndex w = crew.all;
  if constexpr (kStep == Step::route) route(warp, p, w);
  if constexpr (kStep == Step::htDispatch) htDispatch<1, kDuty>(warp, p, crew);
  if constexpr (kStep == Step::htDispatchWaves) htDispatch<kHtWaves, Duty::all>(warp, p, crew);
  if constexpr (kStep == Step::htDispatchRails) htDispatchRails(warp, p, w);
  if constexpr (kStep == Step::llDispatch) llDispatch(warp, p, w);
  if constexpr (kStep == Step::llCombine) llCombine(warp, p, w);
  if constexpr (kStep == Step::combine) combine<1>(warp, p, w);
  if constexpr (kStep == Step::combineWaves) combine<kHtWaves>(warp, p, w);
  if constexpr (kStep == Step::combineRails) combineRails(warp, p, w);
}

// use(tag) with the step as a compile-time value, decltype(tag)::value.
template <class Use>
void withStep(Step step, Use use) {
  switch (step) {
    case Step::route:
      return use(std::integral_constant<Step, Step::route>{});
    case Step::htDispatch:
      return use(std::integral_constant<Step, Step::htDispatch>{});
    case Step::htDispatchWaves:
      return use(std::integral_constant<Step, Step::htDispatchWaves>{});
    case Step::htDispatchRails:
      return use(std::integral_constant<Step, Step::htDispatchRails>{});
    case Step::llDispatch:
      return use(std::integral_constant<Step, Step::llDispatch>{});
    case Step::llCombine:
      return use(std::integral_constant<Step, Step::llCombine>{});
    case Step::combine:
      return use(std::integral_constant<Step, Step::combine>{});
    case Step::combineWaves:
      return use(std::integral_constant<Step, Step::combineWaves>{});
    case Step::combineRails:
      return use(std::integral_constant<Step, Step::combineRails>{});
  }
}

// A step whose name is known at run time only. `movers`: of a step that can be divided, the first so many warps move
// rows, the others describe them; 0: all warps do all.
template <class Warp>
void runNamedStep(const Warp& warp, Step step, const StepParams& p, WarpIndex w, int movers = 0) {
  withStep(step, [&](auto tag) {
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
