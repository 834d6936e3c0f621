// The numbers that the GPU's kernels are compiled for: warps per block, and copies in flight. Registers and shared
// memory limit them. These numbers were measured (docs/internals/notebook.md), like the warps of plain kernels in
// view/steps.h. backend/cuda_plan.h chooses how many blocks a step gets.
#pragma once

#include "device/view/steps.h"

namespace moe {

// The most warps per block of a step's plain kernel. `major`: of the GPU's compute capability. Newer compilers give two
// LL dispatches more registers there than 16 warps have.
MOE_HOST_DEVICE constexpr int plainWarpsMax(const StepRow& row, bool far, int major) {
  const bool wantsMore = row.step == Step::llRouteDispatch || row.step == Step::llPlacedCast;
  const int most = far ? row.farWarps : row.warps;
  return major >= 10 && wantsMore ? (far ? 8 : 12) : most;
}
// Warps per block of bulk kernels. A divided step has further warps, which describe rows.
inline constexpr int kBulkWarpsMax = 8;
MOE_HOST_DEVICE constexpr int describingWarps(Step step) {
  return rowOf(step).isDivided() ? 4 : 0;
}
inline constexpr int kBulkStages = 3;  // bulk copies that a warp keeps in flight
// For steps that also store scales and words lane by lane: the share of a multiprocessor's memory that stages may take,
// in per cent. The rest is first-level cache, which keeps the tables that lanes look up.
inline constexpr int kCastSharedPercent = 50;
// For kernels that sum bulk-copied terms: copies in flight per warp (slots), each of some 16-byte pieces per lane. Long
// rows have large slots, which need fewer instructions; the instructions limit such sums. Short rows are limited by
// look-ups and need more warps, for which large slots leave no registers.
inline constexpr int kSumSlotsMin = 3, kSumSlotsMax = 10, kSumPiecesShort = 4, kSumPiecesLong = 7;
inline constexpr std::uint32_t kSumPieceBytes = 512, kSumLongRowBytes = 12288;
MOE_HOST_DEVICE constexpr int sumWarpsMax(int pieces) {
  return pieces == kSumPiecesLong ? 12 : 16;
}
MOE_HOST_DEVICE constexpr int sumPieces(std::uint32_t rowBytes) {
  return rowBytes >= kSumLongRowBytes ? kSumPiecesLong : kSumPiecesShort;
}
// The share of a row that goes into one slot. Shares are equal, and whole pieces of a warp.
MOE_HOST_DEVICE constexpr std::uint32_t sumShare(std::uint32_t rowBytes, std::uint32_t slotBytes) {
  if (rowBytes == 0) return 0;
  const std::uint32_t shares = (rowBytes + slotBytes - 1) / slotBytes, each = (rowBytes + shares - 1) / shares;
  return (each + kSumPieceBytes - 1) / kSumPieceBytes * kSumPieceBytes;
}

// The shared memory that a warp's bulk copies use.
struct WarpStages {
  int count;
  std::uint32_t bytes;  // bytes per stage
};

}  // namespace moe
