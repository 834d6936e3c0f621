// The kernel that tells the host what the clock of the steps' records shows.
#include "device/kernels/kernels.h"
#include "device/policy/cuda/flags.h"

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
