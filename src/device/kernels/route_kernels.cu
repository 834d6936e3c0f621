// The kernels of the route and of the steps that report on it, the kernel that counts a dispatch layout, and the one
// that reads the clock of step records for the host.
#include "device/kernels/kernels.h"
#include "device/kernels/route_steps.h"
#include "device/kernels/step_kernels.h"
#include "device/protocol/report/dispatch_layout.h"

template <>
const void* moe::kernelOf<moe::StepFamily::route>(const KernelChoice& choice) {
  return kernelIn<StepFamily::route>(choice);
}

namespace moe {
namespace {

__global__ void clockKernel(std::uint64_t* to) {
  cuda_flags::storeRelease(to, cuda_flags::nanoseconds());
}

// A block has a thread for each entry or each expert of a rank, as far as they suffice.
constexpr int kLayoutThreads = 1024, kLayoutBlocks = 128;

__global__ void __launch_bounds__(kLayoutThreads, 1) layoutKernel(const __grid_constant__ LayoutArgs args) {
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const CudaBlock policy;
  DispatchLayout<CudaBlock>(policy, args, {block, blocks, blocks}).run();
}

}  // namespace

cudaError_t launchLayout(const LayoutArgs& args, cudaStream_t stream) {
  const int wanted = std::max(args.tokens * args.topk, args.map.count(0));
  const int warps =
      std::clamp((wanted + CudaBlock::kLanes - 1) / CudaBlock::kLanes, 1, kLayoutThreads / CudaBlock::kLanes);
  layoutKernel<<<std::min(args.map.nranks, kLayoutBlocks), warps * CudaBlock::kLanes, 0, stream>>>(args);
  return cudaGetLastError();
}
cudaError_t loadLayout() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, layoutKernel);
}

cudaError_t launchClock(std::uint64_t* to, cudaStream_t stream) {
  clockKernel<<<1, 1, 0, stream>>>(to);
  return cudaGetLastError();
}

}  // namespace moe
