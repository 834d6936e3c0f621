// Runs any step by its name. This is the only file that knows all families, and therefore all protocols.
#pragma once

#include "device/kernels/combine_steps.h"
#include "device/kernels/ht_dispatch_steps.h"
#include "device/kernels/ll_steps.h"
#include "device/kernels/plain_steps.h"
#include "device/kernels/route_steps.h"

namespace moe {

template <class Warp>
void runNamedStep(const Warp& warp, Step step, const StepParams& p, WarpIndex w, int movers = 0) {
  const auto runs = [&]<StepFamily kFamily>() { return runNamedStep<kFamily>(warp, step, p, w, movers); };
  runs.template operator()<StepFamily::route>() || runs.template operator()<StepFamily::htDispatch>() ||
      runs.template operator()<StepFamily::cast>() || runs.template operator()<StepFamily::combine>() ||
      runs.template operator()<StepFamily::ll>() || runs.template operator()<StepFamily::codedCombine>() ||
      runs.template operator()<StepFamily::plain>();
}

}  // namespace moe
