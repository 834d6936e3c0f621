// How a cuda backend starts the kernel of a step: launchKernel (device/kernels/kernels.h), unless someone has put
// another function in its place. perf/moe_perf/launch_seat.cc does, to see what is launched and to time a kernel of its
// own under the library's host code; nothing in the library does, and users cannot.
#pragma once

#include <functional>

#include "backend/backend.h"
#include "device/kernels/kernels.h"

namespace moe {

using KernelLaunch = std::function<cudaError_t(Step, const StepParams&, const KernelShape&, cudaStream_t)>;

// From the next launch of `backend` on, which must be a cuda backend. `launch` does not throw. Not while another thread
// launches.
void setKernelLaunch(Backend& backend, KernelLaunch launch);

}  // namespace moe
