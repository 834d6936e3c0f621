#include "device/kernels/kernels.h"

#include "device/kernels/kernel_choice.h"
#include "device/rows/row_math.h"
#include "device/rows/wire_row.h"

namespace moe {
namespace {

constexpr int kWarpThreads = 32;

const void* kernelOf(const KernelChoice& choice) {
  switch (rowOf(choice.step).family) {
    case StepFamily::route:
      return kernelOf<StepFamily::route>(choice);
    case StepFamily::htDispatch:
      return kernelOf<StepFamily::htDispatch>(choice);
    case StepFamily::cast:
      return kernelOf<StepFamily::cast>(choice);
    case StepFamily::ll:
      return kernelOf<StepFamily::ll>(choice);
    case StepFamily::combine:
      return kernelOf<StepFamily::combine>(choice);
    case StepFamily::codedCombine:
      return kernelOf<StepFamily::codedCombine>(choice);
    case StepFamily::plain:
      return kernelOf<StepFamily::plain>(choice);
  }
  return nullptr;
}

cudaError_t load(const KernelChoice& choice, std::size_t sharedBytes) {
  const void* kernel = kernelOf(choice);
  if (kernel == nullptr) return cudaSuccess;
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess || sharedBytes == 0) return error;
  const auto set = [&](cudaFuncAttribute what, int value) { return cudaFuncSetAttribute(kernel, what, value); };
  if (rowOf(choice.step).family == StepFamily::cast) {
    const cudaError_t refused = set(cudaFuncAttributePreferredSharedMemoryCarveout, kCastSharedPercent);
    if (refused != cudaSuccess) return refused;
  }
  return set(cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sharedBytes));
}

// Loads the kernels of a step for one domain or for several.
cudaError_t loadStep(Step step, bool far, bool bulk, std::size_t sharedBytes) {
  cudaError_t error = load({step, far, false, false, false}, 0);
  const StepRow row = rowOf(step);
  const int first = row.hasFormats() ? kWireFp8 : kWireRow, last = row.hasFormats() ? kWireLogfmt10 : kWireRow;
  for (int wire = first; row.hasTypes() && !far && wire <= last && error == cudaSuccess; ++wire) {
    error = load({step, far, false, false, true, wire}, 0);
  }
  for (const bool longRows : {false, true}) {
    if (bulk && error == cudaSuccess) error = load({step, far, true, longRows, false}, sharedBytes);
  }
  return error;
}

}  // namespace

std::size_t kernelSharedBytes(const KernelShape& shape) {
  if (!shape.bulk) return 0;
  return static_cast<std::size_t>(shape.warpsPerBlock * shape.stages.count) * shape.stages.bytes + 128;
}

cudaError_t loadKernels(bool bulk, std::size_t sharedBytes) {
  for (const StepRow& row : kSteps.rows) {
    for (const bool far : {false, true}) {
      const cudaError_t error = loadStep(row.step, far, bulk, sharedBytes);
      if (error != cudaSuccess) return error;
    }
  }
  return loadLayout();
}

cudaError_t launchKernel(Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream) {
  const bool longRows = shape.bulk && shape.stages.bytes == kSumPiecesLong * kSumPieceBytes;
  // A step that reaches no other rank has the same kernel in one domain and in several.
  const bool far = params.comm.split() && rowOf(step).has(kFar);
  const int rowType = rowOf(step).combines() ? params.combine.rowType : params.dispatch.cast.rowType;
  const void* kernel = kernelOf({step, far, shape.bulk, longRows, rowType == kBf16, params.combine.wire});
  if (kernel == nullptr) return cudaErrorInvalidValue;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>((shape.warpsPerBlock + shape.describingWarps) * kWarpThreads));
  config.dynamicSmemBytes = kernelSharedBytes(shape);
  config.stream = stream;
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &dependent;
  config.numAttrs = shape.dependent ? 1 : 0;
  // The runtime copies the arguments, but accepts no pointers to constants. Only bulk kernels have the second argument.
  void* arguments[] = {const_cast<StepParams*>(&params), const_cast<WarpStages*>(&shape.stages)};
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

}  // namespace moe
