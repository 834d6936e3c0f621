// The steps over the host policy, for each build. Parameters are those of device/view/views.h, which every build knows
// under its own name.
#pragma once

#include "device/kernels/run_step.h"
#include "device/policy/host/warp.h"

namespace moe {

// NOLINTNEXTLINE(misc-definitions-in-headers): each build includes this text once, in a namespace of its own.
void runHostStepHere(int step, const void* params, const int* warp, void* pace) {
  runNamedStep(HostWarp(HostQueueMemory(), static_cast<HostPace*>(pace)), static_cast<Step>(step),
               *static_cast<const StepParams*>(params), WarpIndex{warp[0], warp[1], warp[1]});
}

}  // namespace moe
