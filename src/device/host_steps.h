// Runs a step with the host policy on the calling thread.
#pragma once

#include "device/host_pace.h"
#include "device/steps.h"

namespace moe {

// `pace`: of the calling thread.
void runHostStep(Step step, const StepParams& params, HostPace& pace) noexcept;

}  // namespace moe
