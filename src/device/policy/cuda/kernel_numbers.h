// What the GPU's kernels are compiled for: warps per block, and copies in flight. Registers and shared memory set the
// limits; the numbers were measured (docs/internals/notebook.md), and so were the warps of plain kernels, which stand
// in view/steps.h. backend/cuda_plan.h says how many blocks a step gets.
#pragma once

#include "device/view/steps.h"

namespace moe {

// Of bulk kernels: warps per block, and beside them those of a divided step that describe rows.
inline constexpr int kBulkWarpsMax = 8;
MOE_HOST_DEVICE constexpr int describingWarps(Step step) {
  return rowOf(step).isDivided() ? 4 : 0;
}
inline constexpr int kBulkStages = 3;  // bulk copies that a warp keeps in flight
// Of steps that also bring scales and words, lane by lane, the share of a multiprocessor's memory that stages may take,
// in per cent. The rest is first-level cache, where what the lanes look up stays.
inline constexpr int kCastSharedPercent = 50;
// Of those that sum what bulk copies bring: copies in flight of a warp, each of some 16-byte pieces per lane. Of long
// rows, large ones: they cost fewer instructions, which is what such sums wait for. Short rows wait for their look-ups,
// and want more warps, for which large ones have no registers.
inline constexpr int kSumSlotsMin = 3, kSumSlotsMax = 10, kSumPiecesShort = 4, kSumPiecesLong = 7;
inline constexpr std::uint32_t kSumPieceBytes = 512, kSumLongRowBytes = 12288;
MOE_HOST_DEVICE constexpr int sumWarpsMax(int pieces) {
  return pieces == kSumPiecesLong ? 12 : 16;
}
MOE_HOST_DEVICE constexpr int sumPieces(std::uint32_t rowBytes) {
  return rowBytes >= kSumLongRowBytes ? kSumPiecesLong : kSumPiecesShort;
}
// Of a row: equal shares, in whole pieces of a warp, that fit a slot.
MOE_HOST_DEVICE constexpr std::uint32_t sumShare(std::uint32_t rowBytes, std::uint32_t slotBytes) {
  if (rowBytes == 0) return 0;
  const std::uint32_t shares = (rowBytes + slotBytes - 1) / slotBytes, each = (rowBytes + shares - 1) / shares;
  return (each + kSumPieceBytes - 1) / kSumPieceBytes * kSumPieceBytes;
}

// Shared memory into which a warp's bulk copies go.
struct WarpStages {
  int count;
  std::uint32_t bytes;  // of each
};

}  // namespace moe
