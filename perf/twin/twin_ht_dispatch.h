// The hottest kernel of the library by hand: HT dispatch in one domain, FLAT, output in the window, as one plain kernel
// without policies. It has the same parameters, window, flags, epochs, announcements and division of work, so that a
// rank may run either. moe_perf --twin shows what the policies cost.
#pragma once

#include <cuda_runtime_api.h>

#include "device/kernels/kernels.h"

namespace moe::perf {

inline constexpr int kTwinRanksMax = 32;  // a lane for each

// Before the first launch, with nothing in flight: a kernel that is loaded at its first launch may wait for the GPU.
cudaError_t loadTwin();

// In place of launchKernel: HT dispatch by the twin, or cudaErrorNotSupported if it is one that the twin cannot do;
// other steps by the library's kernels.
cudaError_t launchTwin(Step step, const StepParams& params, const KernelShape& shape, cudaStream_t stream);

}  // namespace moe::perf
