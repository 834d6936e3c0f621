// The kernels of the route and of the steps that report on it, and the kernel that reads the clock of step records for
// the host.
#include "device/kernels/kernels.h"
#include "device/kernels/route_steps.h"
#include "device/kernels/step_kernels.h"

template <>
const void* moe::kernelOf<moe::StepFamily::route>(const KernelChoice& choice) {
  return kernelIn<StepFamily::route>(choice);
}

namespace moe {
namespace {

__global__ void clockKernel(std::uint64_t* to) {
  cuda_flags::storeRelease(to, cuda_flags::nanoseconds());
}

}  // namespace

cudaError_t launchClock(std::uint64_t* to, cudaStream_t stream) {
  clockKernel<<<1, 1, 0, stream>>>(to);
  return cudaGetLastError();
}

}  // namespace moe
