// The kernels of a family of steps. Only the family's .cu file includes this, and its kernels are local to it, because
// kernels that other files may refer to get slightly larger code.
#pragma once

#include "device/kernels/kernel_choice.h"
#include "device/kernels/kernel_record.h"
#include "device/kernels/step_code.h"
#include "device/policy/cuda/block.h"
#include "device/policy/cuda/bulk_sums.h"
#include "device/policy/cuda/bulk_warp.h"
#include "device/policy/cuda/puts.h"

namespace moe {
namespace {

// Neighbours are in different blocks.
MOE_LANES WarpIndex thisWarp() {
  const int inBlock = static_cast<int>(threadIdx.x) / CudaWarp::kLanes;
  const int warps = static_cast<int>(blockDim.x) / CudaWarp::kLanes, blocks = static_cast<int>(gridDim.x);
  return {static_cast<int>(blockIdx.x) + inBlock * blocks, warps * blocks, blocks, 0, inBlock};
}

// The policy of a step that works as far as possible before its predecessor has ended. Its record begins while it
// waits.
template <Step kStep, class Kernel>
class RecordedBlock : public CudaBlock {
 public:
  explicit MOE_LANES RecordedBlock(const StepParams& params) : params_(params) {}

  // These loops are not unrolled. A step of few tokens runs each of them once, and would jump over the other copies.
  template <class Body>
  MOE_LANES void forEach(int n, Body body) const {
    __syncthreads();
#pragma unroll 1
    for (int i = thread(); i < n; i += threads()) body(i);
    __syncthreads();
  }
  template <class Body>
  MOE_LANES void each(int n, Body body) const {
#pragma unroll 1
    for (int i = threads() - 1 - thread(); i < n; i += threads()) body(i);
  }

  MOE_LANES std::uint64_t follow() const {
    fetchParameters();
    followPredecessor();
    failures_ = lookAtFailures(params_.comm);
    return KernelRecord::now<kStep>(params_);
  }
  // Loads nothing: follow() has just read the failures.
  template <class... Looked>
  MOE_LANES bool stopped(const CommView&, Looked&... looked) const {
    return anyFailures(failures_, looked...);
  }
  template <class ValueOf, class Take, class Meanwhile, class... Looked>
  MOE_LANES bool collectUnlessStopped(const CommView&, int n, ValueOf valueOf, Take take, Meanwhile meanwhile,
                                      Looked&... looked) const {
    return collectUnless(failures_, n, valueOf, take, meanwhile, looked...);
  }
  template <SumList List>
  MOE_LANES bool reduceRows(const CommView& comm, const List& list) const {
    return reduceRowsOf<Kernel>(comm, list);
  }
  template <CastList Casts>
  MOE_LANES bool castRows(const Casts& casts) const {
    return castRowsOf<Kernel::kRowTypes>(casts);
  }
  MOE_LANES void noteStart(std::uint64_t began) const {
    if (!started_) KernelRecord::begin<kStep>(params_, began);
    started_ = true;
  }
  // A step that is to stop ends before its record begins.
  MOE_LANES void end() const {
    if (started_) KernelRecord::end<kStep>(params_);
  }

 private:
  // Reads each line of the parameters, so that it is in the cache when the wait is over. Otherwise it would come from
  // memory then.
  MOE_LANES void fetchParameters() const {
    constexpr int kLine = 64 / sizeof(std::uint32_t), kWords = sizeof(StepParams) / sizeof(std::uint32_t);
    const auto* words = reinterpret_cast<const std::uint32_t*>(&params_);
    std::uint32_t any = 0;
#pragma unroll 1
    for (int i = 0; i < kWords; i += kLine) any |= words[i];
    if (any == kNever) __nanosleep(1);  // so that the compiler keeps the loads
  }
  static constexpr std::uint32_t kNever = 0x9e3779b9;

  const StepParams& params_;
  mutable bool started_ = false;
  mutable std::uint32_t failures_ = 0;
};

// The major compute capability that a kernel is compiled for.
#ifdef __CUDA_ARCH__
inline constexpr int kMajor = __CUDA_ARCH__ / 100;
#else
inline constexpr int kMajor = 0;
#endif

// Whether a step starts while the route that it follows still runs.
template <Step kStep>
MOE_LANES bool isBeside(const StepParams& params) {
  if constexpr (rowOf(kStep).runsBeside()) return (params.phases & kSendPhase) != 0 && params.dispatch.besideRoute != 0;
  return false;
}

template <Step kStep, class Warp>
__global__ void __launch_bounds__(plainWarpsMax(rowOf(kStep), Warp::kPuts, kMajor) * CudaWarp::kLanes, 1)
    stepKernel(const __grid_constant__ StepParams params) {
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const WarpIndex w{block, blocks, blocks};
  if constexpr (rowOf(kStep).family == StepFamily::plain) {
    const RecordedBlock<kStep, Warp> recorded(params);
    StepCode<kStep>::run(recorded, params, w);
    return recorded.end();
  } else if constexpr (rowOf(kStep).takesBlocks()) {
    Warp::awaitPredecessor();
    // The record begins first, because a dispatch beside this route begins the next one.
    KernelRecord::begin<kStep>(params);
    Warp::letSuccessorBegin();
    StepCode<kStep>::run(Warp{}, params, w);
  } else {
    Warp::prepareBlock(isBeside<kStep>(params));
    KernelRecord::begin<kStep>(params);
    StepCode<kStep>::run(Warp{}, params, thisWarp());
    if (isBeside<kStep>(params)) Warp::awaitPredecessor();
  }
  KernelRecord::end<kStep>(params);
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
  Warp::prepareBlock(isBeside<kStep>(params));
  KernelRecord::begin<kStep>(params);
  auto* memory =
      reinterpret_cast<std::uint8_t*>(aligned) + static_cast<std::uint32_t>(warp * stages.count) * stages.bytes;
  const WarpIndex w = thisWarp();
  constexpr int kDescribers = describingWarps(kStep);
  if constexpr (kDescribers == 0) {
    StepCode<kStep>::run(Warp(memory, stages, shared + warp), params, w);
  } else {
    const int describers = kDescribers * w.blocks, movers = w.count - describers;
    if (w.index < movers) {
      const Crew crew{w, {w.index, movers, w.blocks, kBulkWarpsMax}};
      StepCode<kStep>::template runPart<Duty::move>(Warp(memory, stages, shared + warp), params, crew);
    } else {
      const Crew crew{w, {w.index - movers, describers, w.blocks, kDescribers}};
      StepCode<kStep>::template runPart<Duty::describe>(CudaWarp{}, params, crew);
    }
  }
  if (isBeside<kStep>(params)) Warp::awaitPredecessor();
  KernelRecord::end<kStep>(params);
#endif
}

template <class Kernel>
const void* addressOf(Kernel* kernel) {
  return reinterpret_cast<const void*>(kernel);
}

// The kernel for rows of bfloat16. `wire`: the format in which a combine's rows travel.
template <Step kStep, class Warp>
const void* bf16KernelOf(int wire) {
  if constexpr (rowOf(kStep).hasFormats()) {
    switch (wire) {
      case kWireFp8:
        return addressOf(stepKernel<kStep, OnlyFor<Warp, RowTypes::bf16, kWireFp8>>);
      case kWireFp8Blocks:
        return addressOf(stepKernel<kStep, OnlyFor<Warp, RowTypes::bf16, kWireFp8Blocks>>);
      case kWireNvfp4:
        return addressOf(stepKernel<kStep, OnlyFor<Warp, RowTypes::bf16, kWireNvfp4>>);
      default:
        return addressOf(stepKernel<kStep, OnlyFor<Warp, RowTypes::bf16, kWireLogfmt10>>);
    }
  } else {
    return addressOf(stepKernel<kStep, OnlyFor<Warp, RowTypes::bf16>>);
  }
}

// NULL: there is none.
template <Step kStep>
const void* plainKernelOf(const KernelChoice& choice) {
  using Warp = std::conditional_t<rowOf(kStep).takesBlocks(), CudaBlock, CudaWarp>;
  if constexpr (rowOf(kStep).has(kFar)) {
    if (choice.far) return addressOf(stepKernel<kStep, CudaPuts<Warp>>);
  }
  if (choice.far) return nullptr;
  if constexpr (rowOf(kStep).hasTypes()) {
    using Others = OnlyFor<Warp, RowTypes::others>;
    return choice.bf16 ? bf16KernelOf<kStep, Warp>(choice.wire) : addressOf(stepKernel<kStep, Others>);
  } else if constexpr (rowOf(kStep).has(kNear)) {
    return addressOf(stepKernel<kStep, Warp>);
  }
  return nullptr;
}

// Sums have one bulk kernel for short rows and one for long ones.
template <Step kStep>
const void* bulkKernelOf(bool far, bool longRows) {
  if constexpr (rowOf(kStep).has(kFarBulk)) {
    if (far) return addressOf(bulkStepKernel<kStep, CudaPuts<CudaBulkWarp>>);
  }
  if constexpr (rowOf(kStep).has(kBulk) && rowOf(kStep).combines()) {
    if (!far && longRows) return addressOf(bulkStepKernel<kStep, CudaBulkSums<kSumPiecesLong>>);
    if (!far) return addressOf(bulkStepKernel<kStep, CudaBulkSums<kSumPiecesShort>>);
  } else if constexpr (rowOf(kStep).has(kBulk)) {
    if (!far) return addressOf(bulkStepKernel<kStep, CudaBulkWarp>);
  }
  return nullptr;
}

template <StepFamily kFamily>
const void* kernelIn(const KernelChoice& choice) {
  const void* kernel = nullptr;
  withStep<kFamily>(choice.step, [&](auto tag) {
    constexpr Step kStep = decltype(tag)::value;
    kernel = choice.bulk ? bulkKernelOf<kStep>(choice.far, choice.longRows) : plainKernelOf<kStep>(choice);
  });
  return kernel;
}

}  // namespace
}  // namespace moe
