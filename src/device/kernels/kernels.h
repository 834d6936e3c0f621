// The kernels of the steps, for the cuda backend. No other header names them.
#pragma once

#include <cuda_runtime_api.h>

#include "device/policy/cuda/kernel_numbers.h"
#include "device/view/layout_args.h"

namespace moe {

struct KernelShape {
  int blocks;
  int warpsPerBlock;
  bool bulk;            // uses the bulk-copy engine
  WarpStages stages;    // bulk kernels only
  int describingWarps;  // further warps per block: describingWarps(step) in a bulk kernel, else 0
  bool dependent;       // may be launched before the kernel ahead of it has ended, and then waits for it on the device
};

// The shared memory that a bulk kernel of this shape needs.
std::size_t kernelSharedBytes(const KernelShape& shape);

// Loads every kernel now, so that no launch has to. Loading waits for the device, on which a peer's kernel may be
// waiting for this rank. Allows bulk kernels `sharedBytes` of shared memory.
cudaError_t loadKernels(bool bulk, std::size_t sharedBytes);

// Stores the time by the clock of step records, which is never 0, to a word that the host reads.
cudaError_t launchClock(std::uint64_t* to, cudaStream_t stream);

// Counts a dispatch layout.
cudaError_t launchLayout(const LayoutArgs& args, cudaStream_t stream);
// Loads its kernel, as loadKernels() does for those of steps.
cudaError_t loadLayout();

cudaError_t launchKernel(Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream);

}  // namespace moe
