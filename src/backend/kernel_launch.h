// How a cuda backend starts the kernel of a step: by launchKernel (device/kernels/kernels.h), unless a program has set
// another function. Only perf/moe_perf/launch_seat.cc does so, to see what is launched and to time a kernel of its own
// under the library's host code. Users cannot.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "device/kernels/kernels.h"

namespace moe {

using KernelLaunch = std::function<cudaError_t(Step, const StepParams&, const KernelShape&, cudaStream_t)>;

// Takes effect from the next launch of `backend` on, which must be a cuda backend. `launch` does not throw. No other
// thread may launch meanwhile.
void setKernelLaunch(Backend& backend, KernelLaunch launch);

}  // namespace moe
