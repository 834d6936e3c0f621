// The steps that a backend can launch, and the one switch from a step's name to its code.
#pragma once

#include <type_traits>

#include "device/combine.h"
#include "device/ht_dispatch.h"
#include "device/ll_dispatch.h"
#include "device/route.h"

namespace moe {

enum class Step { route, htDispatch, htDispatchWaves, llDispatch, combine, combineWaves };

inline Step dispatchStep(const HandleView& h) {
  if (h.lowLatency != 0) return Step::llDispatch;
  return goesInWaves(h) ? Step::htDispatchWaves : Step::htDispatch;
}
inline Step combineStep(const HandleView& h) {
  return goesInWaves(h) ? Step::combineWaves : Step::combine;
}

// Of GPU kernels: warps per block, at most. As many loads in flight as registers allow.
MOE_HOST_DEVICE constexpr int kernelWarpsMax(Step step) {
  if (step == Step::combine) return 24;
  if (step == Step::combineWaves) return 20;
  return step == Step::htDispatchWaves ? 8 : 16;
}
inline constexpr int kBulkWarpsMax = 8;

template <Step kStep, class Warp>
MOE_LANES void runStep(const Warp& warp, const StepParams& p, WarpIndex w) {
  if constexpr (kStep == Step::route) route(warp, p, w);
  if constexpr (kStep == Step::htDispatch) htDispatch<1>(warp, p, w);
  if constexpr (kStep == Step::htDispatchWaves) htDispatch<kHtWaves>(warp, p, w);
  if constexpr (kStep == Step::llDispatch) llDispatch(warp, p, w);
  if constexpr (kStep == Step::combine) combine<1>(warp, p, w);
  if constexpr (kStep == Step::combineWaves) combine<kHtWaves>(warp, p, w);
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
    case Step::llDispatch:
      return use(std::integral_constant<Step, Step::llDispatch>{});
    case Step::combine:
      return use(std::integral_constant<Step, Step::combine>{});
    case Step::combineWaves:
      return use(std::integral_constant<Step, Step::combineWaves>{});
  }
}

// A step whose name is known at run time only.
template <class Warp>
void runNamedStep(const Warp& warp, Step step, const StepParams& p, WarpIndex w) {
  withStep(step, [&](auto tag) { runStep<decltype(tag)::value>(warp, p, w); });
}

}  // namespace moe
