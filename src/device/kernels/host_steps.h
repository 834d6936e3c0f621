// Runs a step with the host policy on the calling thread. The same code is built several times, for processors with
// more instructions. All builds give the same bits.
#pragma once

#include "device/kernels/host_simd.h"
#include "device/policy/host/pace.h"
#include "device/view/steps.h"

namespace moe {

// Does one warp's part of a step. `pace` is the calling thread's.
using HostStepRunner = void (*)(Step step, const StepParams& params, WarpIndex warp, HostPace& pace);

// NULL if this processor or this build of the library lacks the instructions. Automatic: the best there is.
HostStepRunner hostStepRunner(HostSimd simd);

}  // namespace moe
