// Runs a step with the host policy on the calling thread. There are several builds of the same text, for processors
// with more instructions; their results have the same bits.
#pragma once

#include "device/kernels/host_simd.h"
#include "device/policy/host/pace.h"
#include "device/view/step_names.h"

namespace moe {

// Does one warp's part of a step. `pace`: of the calling thread.
using HostStepRunner = void (*)(Step step, const StepParams& params, WarpIndex warp, HostPace& pace);

// NULL if this processor, or this build of the library, has none. Automatic: the best there is.
HostStepRunner hostStepRunner(HostSimd simd);

}  // namespace moe
