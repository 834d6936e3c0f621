#include "device/cuda_block.h"
#include "device/cuda_bulk_warp.h"
#include "device/kernels.h"

namespace moe {
namespace {

MOE_LANES WarpIndex thisWarp() {
  const int inBlock = static_cast<int>(threadIdx.x) / CudaWarp::kLanes;
  const int warps = static_cast<int>(blockDim.x) / CudaWarp::kLanes, blocks = static_cast<int>(gridDim.x);
  return {static_cast<int>(blockIdx.x) + inBlock * blocks, warps * blocks, blocks};  // neighbours in different blocks
}

template <Step kStep>
__global__ void __launch_bounds__(kernelWarpsMax(kStep) * CudaWarp::kLanes, 1)
    stepKernel(const __grid_constant__ StepParams params) {
  if constexpr (kStep == Step::route) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    CudaBlock::followPredecessor();
    runStep<kStep>(CudaBlock{}, params, {block, blocks, blocks});
  } else {
    CudaWarp::prepareBlock();
    runStep<kStep>(CudaWarp{}, params, thisWarp());
  }
}

template <Step kStep>
__global__ void __launch_bounds__(kBulkWarpsMax* CudaWarp::kLanes, 1)
    bulkStepKernel(const __grid_constant__ StepParams params, std::uint32_t stageBytes) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ std::uint8_t dynamic[];
  __shared__ CudaBulkWarp::Shared shared[kBulkWarpsMax];
  // Bulk copies want 128-byte aligned stages; the runtime gives less alignment than that by its contract.
  const auto aligned = (reinterpret_cast<std::uintptr_t>(dynamic) + 127) / 128 * 128;
  const int warp = static_cast<int>(threadIdx.x) / CudaWarp::kLanes;
  CudaWarp::prepareBlock();
  auto* stages = reinterpret_cast<std::uint8_t*>(aligned) + warp * CudaBulkWarp::kStages * stageBytes;
  runStep<kStep>(CudaBulkWarp(stages, stageBytes, shared + warp), params, thisWarp());
#endif
}

template <class Kernel>
cudaError_t load(Kernel kernel, std::size_t sharedBytes) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess || sharedBytes == 0) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sharedBytes));
}

// Runs `use` with the kernel of a step.
template <class Use>
cudaError_t withKernel(Step step, Use use) {
  cudaError_t error = cudaErrorInvalidValue;
  withStep(step, [&](auto tag) { error = use(stepKernel<decltype(tag)::value>); });
  return error;
}

template <class Use>
cudaError_t withBulkKernel(Step step, Use use) {
  if (step == Step::htDispatch) return use(bulkStepKernel<Step::htDispatch>);
  return step == Step::htDispatchWaves ? use(bulkStepKernel<Step::htDispatchWaves>) : cudaErrorInvalidValue;
}

}  // namespace

std::size_t kernelSharedBytes(const KernelShape& shape) {
  if (!shape.bulk) return 0;
  return static_cast<std::size_t>(shape.warpsPerBlock) * CudaBulkWarp::kStages * shape.stageBytes + 128;
}

cudaError_t loadKernels(bool bulk, std::size_t sharedBytes) {
  for (Step step :
       {Step::route, Step::htDispatch, Step::htDispatchWaves, Step::llDispatch, Step::combine, Step::combineWaves}) {
    const cudaError_t error = withKernel(step, [](auto kernel) { return load(kernel, 0); });
    if (error != cudaSuccess) return error;
  }
  if (!bulk) return cudaSuccess;
  for (Step step : {Step::htDispatch, Step::htDispatchWaves}) {
    const cudaError_t error = withBulkKernel(step, [&](auto kernel) { return load(kernel, sharedBytes); });
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t launchKernel(Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.warpsPerBlock * CudaWarp::kLanes));
  config.dynamicSmemBytes = kernelSharedBytes(shape);
  config.stream = stream;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &dependent;
  config.numAttrs = shape.dependent ? 1 : 0;
  if (shape.bulk) {
    return withBulkKernel(step,
                          [&](auto kernel) { return cudaLaunchKernelEx(&config, kernel, params, shape.stageBytes); });
  }
  return withKernel(step, [&](auto kernel) { return cudaLaunchKernelEx(&config, kernel, params); });
}

}  // namespace moe
