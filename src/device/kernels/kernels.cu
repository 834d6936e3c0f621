#include "device/kernels/kernels.h"
#include "device/kernels/run_step.h"
#include "device/policy/cuda/block.h"
#include "device/policy/cuda/bulk_sums.h"
#include "device/policy/cuda/puts.h"

namespace moe {
namespace {

MOE_LANES WarpIndex thisWarp() {
  const int inBlock = static_cast<int>(threadIdx.x) / CudaWarp::kLanes;
  const int warps = static_cast<int>(blockDim.x) / CudaWarp::kLanes, blocks = static_cast<int>(gridDim.x);
  return {static_cast<int>(blockIdx.x) + inBlock * blocks, warps * blocks, blocks};  // neighbours in different blocks
}

template <Step kStep, class Warp>
__global__ void __launch_bounds__(kernelWarpsMax(kStep, Warp::kPuts) * CudaWarp::kLanes, 1)
    stepKernel(const __grid_constant__ StepParams params) {
  if constexpr (kStep == Step::route) {
    const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
    Warp::followPredecessor();
    const WarpIndex w{block, blocks, blocks};
    runStep<kStep>(Warp{}, params, {w, w});
  } else {
    Warp::prepareBlock();
    runStep<kStep>(Warp{}, params, {thisWarp(), thisWarp()});
  }
}

// The warps of a divided step that only describe rows have no stages.
template <Step kStep, class Warp>
__global__ void __launch_bounds__((Warp::kWarpsMax + describingWarps(kStep)) * CudaWarp::kLanes, 1)
    bulkStepKernel(const __grid_constant__ StepParams params, WarpStages stages) {
#if __CUDA_ARCH__ >= 900
  extern __shared__ std::uint8_t dynamic[];
  __shared__ typename Warp::Shared shared[Warp::kWarpsMax];
  // Bulk copies want 128-byte aligned stages; the runtime gives less alignment than that by its contract.
  const auto aligned = (reinterpret_cast<std::uintptr_t>(dynamic) + 127) / 128 * 128;
  const int warp = static_cast<int>(threadIdx.x) / CudaWarp::kLanes;
  Warp::prepareBlock();
  auto* memory =
      reinterpret_cast<std::uint8_t*>(aligned) + static_cast<std::uint32_t>(warp * stages.count) * stages.bytes;
  const WarpIndex w = thisWarp();
  if constexpr (describingWarps(kStep) == 0) {
    runStep<kStep>(Warp(memory, stages, shared + warp), params, {w, w});
  } else {
    const int describers = describingWarps(kStep) * w.blocks, movers = w.count - describers;
    if (w.index < movers) {
      runStep<kStep, Duty::move>(Warp(memory, stages, shared + warp), params,
                                 {w, {w.index, movers, w.blocks, kBulkWarpsMax}});
    } else {
      const WarpIndex team{w.index - movers, describers, w.blocks, describingWarps(kStep)};
      runStep<kStep, Duty::describe>(CudaWarp{}, params, {w, team});
    }
  }
#endif
}

template <class Kernel>
cudaError_t load(Kernel kernel, std::size_t sharedBytes) {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess || sharedBytes == 0) return error;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sharedBytes));
}

// Runs `use` with the kernel of a step, for one domain or, `far`, for several.
template <class Use>
cudaError_t withKernel(Step step, bool far, Use use) {
  cudaError_t error = cudaErrorInvalidValue;
  withStep(step, [&](auto tag) {
    constexpr Step kStep = decltype(tag)::value;
    using Warp = std::conditional_t<kStep == Step::route, CudaBlock, CudaWarp>;
    if constexpr (hasNearKernel(kStep)) {
      if (!far) error = use(stepKernel<kStep, Warp>);
    }
    if constexpr (hasFarKernel(kStep)) {
      if (far) error = use(stepKernel<kStep, CudaPuts<Warp>>);
    }
  });
  return error;
}

// Sums have one for short rows and one for long ones.
template <class Use>
cudaError_t withBulkKernel(Step step, bool far, bool longRows, Use use) {
  cudaError_t error = cudaErrorInvalidValue;
  withStep(step, [&](auto tag) {
    constexpr Step kStep = decltype(tag)::value;
    if constexpr (isCombine(kStep) && hasBulkKernel(kStep, false)) {
      if (!far && longRows) error = use(bulkStepKernel<kStep, CudaBulkSums<kSumPiecesLong>>);
      if (!far && !longRows) error = use(bulkStepKernel<kStep, CudaBulkSums<kSumPiecesShort>>);
    } else {
      if constexpr (hasBulkKernel(kStep, false)) {
        if (!far) error = use(bulkStepKernel<kStep, CudaBulkWarp>);
      }
      if constexpr (hasBulkKernel(kStep, true)) {
        if (far) error = use(bulkStepKernel<kStep, CudaPuts<CudaBulkWarp>>);
      }
    }
  });
  return error;
}

// The kernels of a step for one domain or for several.
cudaError_t loadStep(Step step, bool far, bool bulk, std::size_t sharedBytes) {
  if (far ? !hasFarKernel(step) : !hasNearKernel(step)) return cudaSuccess;
  cudaError_t error = withKernel(step, far, [](auto kernel) { return load(kernel, 0); });
  if (!bulk || !hasBulkKernel(step, far)) return error;
  for (const bool longRows : {false, true}) {
    if (error != cudaSuccess) return error;
    error = withBulkKernel(step, far, longRows, [&](auto kernel) { return load(kernel, sharedBytes); });
  }
  return error;
}

}  // namespace

std::size_t kernelSharedBytes(const KernelShape& shape) {
  if (!shape.bulk) return 0;
  return static_cast<std::size_t>(shape.warpsPerBlock * shape.stages.count) * shape.stages.bytes + 128;
}

cudaError_t loadKernels(bool bulk, std::size_t sharedBytes) {
  for (const Step step : kSteps) {
    for (const bool far : {false, true}) {
      const cudaError_t error = loadStep(step, far, bulk, sharedBytes);
      if (error != cudaSuccess) return error;
    }
  }
  return cudaSuccess;
}

cudaError_t launchKernel(Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>((shape.warpsPerBlock + shape.describingWarps) * CudaWarp::kLanes));
  config.dynamicSmemBytes = kernelSharedBytes(shape);
  config.stream = stream;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &dependent;
  config.numAttrs = shape.dependent ? 1 : 0;
  const bool far = params.comm.split();
  if (shape.bulk) {
    const bool longRows = shape.stages.bytes == kSumPiecesLong * kSumPieceBytes;
    return withBulkKernel(step, far, longRows,
                          [&](auto kernel) { return cudaLaunchKernelEx(&config, kernel, params, shape.stages); });
  }
  return withKernel(step, far, [&](auto kernel) { return cudaLaunchKernelEx(&config, kernel, params); });
}

}  // namespace moe
