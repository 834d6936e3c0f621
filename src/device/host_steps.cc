#include "device/host_steps.h"

#include "device/host_warp.h"

namespace moe {

void runHostStep(Step step, const StepParams& params) noexcept {
  runNamedStep(HostWarp{}, step, params, WarpIndex{0, 1, 1});
}

}  // namespace moe
