// The steps that a backend can launch, and the one switch from a step's name to its code.
#pragma once

#include <type_traits>

#include "device/combine.h"
#include "device/ht_dispatch.h"
#include "device/ll_dispatch.h"
#include "device/route.h"

namespace moe {

enum class Step { route, htDispatch, llDispatch, combine };

template <Step kStep, class Warp>
MOE_LANES void runStep(const Warp& warp, const StepParams& p, WarpIndex w) {
  if constexpr (kStep == Step::route) route(warp, p, w);
  if constexpr (kStep == Step::htDispatch) htDispatch(warp, p, w);
  if constexpr (kStep == Step::llDispatch) llDispatch(warp, p, w);
  if constexpr (kStep == Step::combine) combine(warp, p, w);
}

// use(tag) with the step as a compile-time value, decltype(tag)::value.
template <class Use>
void withStep(Step step, Use use) {
  switch (step) {
    case Step::route:
      return use(std::integral_constant<Step, Step::route>{});
    case Step::htDispatch:
      return use(std::integral_constant<Step, Step::htDispatch>{});
    case Step::llDispatch:
      return use(std::integral_constant<Step, Step::llDispatch>{});
    case Step::combine:
      return use(std::integral_constant<Step, Step::combine>{});
  }
}

// A step whose name is known at run time only.
template <class Warp>
void runNamedStep(const Warp& warp, Step step, const StepParams& p, WarpIndex w) {
  withStep(step, [&](auto tag) { runStep<decltype(tag)::value>(warp, p, w); });
}

}  // namespace moe
