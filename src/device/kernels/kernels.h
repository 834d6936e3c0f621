// The kernels of the steps, for the cuda backend. No other header names them.
#pragma once

#include <cuda_runtime_api.h>

#include "device/policy/cuda/kernel_numbers.h"

namespace moe {

struct KernelShape {
  int blocks;
  int warpsPerBlock;
  bool bulk;            // with the bulk-copy engine
  WarpStages stages;    // bulk
  int describingWarps;  // of a block, on top of those: describingWarps(step) of a bulk kernel, else 0
  bool dependent;       // may be launched before the kernel ahead of it has ended, and waits for that itself
};

// The shared memory that a bulk kernel of this shape needs.
std::size_t kernelSharedBytes(const KernelShape& shape);

// Loads every kernel now, so that no launch has to. Loading waits for the device, on which a peer's kernel may be
// waiting for us. Allows bulk kernels `sharedBytes` of shared memory.
cudaError_t loadKernels(bool bulk, std::size_t sharedBytes);

// Stores what the clock of the steps' records shows, which is never 0, to a word that the host reads.
cudaError_t launchClock(std::uint64_t* to, cudaStream_t stream);

cudaError_t launchKernel(Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream);

}  // namespace moe
