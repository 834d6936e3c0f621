// The steps that a backend can launch, and the one switch from a step's name to its code.
#pragma once

#include "device/combine.h"
#include "device/ht_dispatch.h"
#include "device/ll_dispatch.h"
#include "device/route.h"

namespace moe {

enum class Step { routeCount, routeScan, routeExchange, routePlace, htDispatch, llDispatch, combine };

template <Step kStep, class Warp>
MOE_LANES void runStep(const Warp& warp, const StepParams& p, WarpIndex w) {
  if (warp.stopped(p.comm)) return;
  if constexpr (kStep == Step::routeCount) routeCount(warp, p, w);
  if constexpr (kStep == Step::routeScan) routeScan(warp, p, w);
  if constexpr (kStep == Step::routeExchange) routeExchange(warp, p, w);
  if constexpr (kStep == Step::routePlace) routePlace(warp, p, w);
  if constexpr (kStep == Step::htDispatch) htDispatch(warp, p, w);
  if constexpr (kStep == Step::llDispatch) llDispatch(warp, p, w);
  if constexpr (kStep == Step::combine) combine(warp, p, w);
}

}  // namespace moe
