// Runs a step with the host policy on the calling thread.
#pragma once

#include "device/steps.h"

namespace moe {

void runHostStep(Step step, const StepParams& params) noexcept;

}  // namespace moe
