// Runs a step whose name is known at run time with a policy.
#pragma once

#include "device/steps.h"

namespace moe::test {

template <class Warp>
void runNamedStep(const Warp& warp, Step step, const StepParams& params, WarpIndex index) {
  switch (step) {
    case Step::routeCount:
      return runStep<Step::routeCount>(warp, params, index);
    case Step::routeScan:
      return runStep<Step::routeScan>(warp, params, index);
    case Step::routeExchange:
      return runStep<Step::routeExchange>(warp, params, index);
    case Step::routePlace:
      return runStep<Step::routePlace>(warp, params, index);
    case Step::htDispatch:
      return runStep<Step::htDispatch>(warp, params, index);
    case Step::llDispatch:
      return runStep<Step::llDispatch>(warp, params, index);
    case Step::combine:
      return runStep<Step::combine>(warp, params, index);
  }
}

}  // namespace moe::test
