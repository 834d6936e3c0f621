// What the GPU's kernels are compiled for: warps per block and copies in flight. As many as registers and shared memory
// allow; the numbers were measured (docs/performance.md). How many blocks a step gets is in backend/cuda_plan.h.
#pragma once

#include "device/steps.h"

namespace moe {

// Warps per block, at most: the more, the fewer registers, and so loads in flight, each has. `puts`: of the kernel for
// several domains, where `combine` is of LL alone, whose blocks are small.
MOE_HOST_DEVICE constexpr int kernelWarpsMax(Step step, bool puts = false) {
  if (step == Step::combine) return puts ? 16 : 24;
  return step == Step::htDispatchWaves || step == Step::htDispatchRails ? 8 : 16;
}
// Of bulk kernels: warps per block, and beside them those of a divided step that keep rows here.
inline constexpr int kBulkWarpsMax = 8;
MOE_HOST_DEVICE constexpr int homeWarps(Step step) {
  return isDivided(step) ? 8 : 0;
}
inline constexpr int kBulkStages = 3;  // bulk copies that a warp keeps in flight
// Of those that sum what bulk copies bring: warps per block; of a warp, copies in flight at most, and bytes of each,
// four 16-byte pieces per lane.
inline constexpr int kSumWarpsMax = 16, kSumSlotsMax = 10;
inline constexpr std::uint32_t kSumSlotBytes = 2048;
MOE_HOST_DEVICE constexpr int bulkWarpsMax(Step step) {
  return isCombine(step) ? kSumWarpsMax : kBulkWarpsMax;
}

// Shared memory into which a warp's bulk copies go.
struct WarpStages {
  int count;
  std::uint32_t bytes;  // of each
};

}  // namespace moe
