// What the GPU's kernels are compiled for: warps per block and copies in flight. As many as registers and shared memory
// allow; the numbers were measured (docs/performance.md). How many blocks a step gets is in backend/cuda_plan.h.
#pragma once

#include "device/steps.h"

namespace moe {

// Warps per block, at most: the more, the fewer registers, and so loads in flight, each has.
MOE_HOST_DEVICE constexpr int kernelWarpsMax(Step step) {
  if (step == Step::combine) return 24;
  if (step == Step::combineWaves) return 20;
  return step == Step::htDispatchWaves || step == Step::htDispatchRails ? 8 : 16;
}
// Of bulk kernels: warps per block, and beside them those of a divided step that keep rows here.
inline constexpr int kBulkWarpsMax = 8;
MOE_HOST_DEVICE constexpr int homeWarps(Step step) {
  return isDivided(step) ? 8 : 0;
}
inline constexpr int kBulkStages = 3;  // bulk copies that a warp keeps in flight

}  // namespace moe
