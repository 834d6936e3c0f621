// Every step by its name: the only file that knows all families, and so all protocols.
#pragma once

#include "device/kernels/cast_steps.h"
#include "device/kernels/coded_combine_steps.h"
#include "device/kernels/combine_steps.h"
#include "device/kernels/ht_dispatch_steps.h"
#include "device/kernels/ll_steps.h"
#include "device/kernels/route_steps.h"

namespace moe {

template <class Warp>
void runNamedStep(const Warp& warp, Step step, const StepParams& p, WarpIndex w, int movers = 0) {
  const auto runs = [&](auto family) { return runNamedStep(family, warp, step, p, w, movers); };
  runs(RouteSteps{}) || runs(HtDispatchSteps{}) || runs(CastSteps{}) || runs(CombineSteps{}) || runs(LlSteps{}) ||
      runs(CodedCombineSteps{});
}

}  // namespace moe
