#include "device/host_steps.h"

#include "device/host_warp.h"

namespace moe {

void runHostStep(Step step, const StepParams& params, HostPace& pace) noexcept {
  runNamedStep(HostWarp(HostQueueMemory(), &pace), step, params, WarpIndex{0, 1, 1});
}

}  // namespace moe
