#include "device/host_steps.h"

#include "device/host_warp.h"

namespace moe {

void runHostStep(Step step, const StepParams& params) noexcept {
  const HostWarp warp;
  const WarpIndex only{0, 1};
  switch (step) {
    case Step::routeCount:
      return runStep<Step::routeCount>(warp, params, only);
    case Step::routeScan:
      return runStep<Step::routeScan>(warp, params, only);
    case Step::routeExchange:
      return runStep<Step::routeExchange>(warp, params, only);
    case Step::routePlace:
      return runStep<Step::routePlace>(warp, params, only);
    case Step::htDispatch:
      return runStep<Step::htDispatch>(warp, params, only);
    case Step::llDispatch:
      return runStep<Step::llDispatch>(warp, params, only);
    case Step::combine:
      return runStep<Step::combine>(warp, params, only);
  }
}

}  // namespace moe
