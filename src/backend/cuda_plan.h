// How a step is spread over a GPU. Pure arithmetic, so that it is tested without one. The numbers come from the ceiling
// probes (docs/performance.md): 8 warps of 3 x 7168 bytes in flight saturate the wire from 16 multiprocessors on.
#pragma once

#include <algorithm>

#include "backend/backend.h"

namespace moe {

struct GpuMachine {
  int multiprocessors = 1;
  int sharers = 1;              // ranks on this GPU: all of their blocks must fit at once
  std::size_t sharedBytes = 0;  // most shared memory of a block
};

// Of the route, a block is what the protocol calls a warp.
inline constexpr int kRouteBlocksMax = 64, kRouteTokensPerBlock = 128, kRouteWarpsPerBlock = 16;
// HT, unless the caller says: from here on more multiprocessors gain less than 2 % (dispatch) or the owner's sums,
// which run after the rows have arrived, are short enough (combine).
inline constexpr int kHtDispatchMultiprocessors = 32, kHtCombineMultiprocessors = 32;
inline constexpr int kSmallTokens = 512, kSmallWarps = 16;  // up to here latency counts; warps per block then
// Of these, operations that only move rows between ranks: each block more is one more fence and one more announcement
// at every peer, and a quarter of the multiprocessors keeps the wire busy.
inline constexpr int kSmallMoveShare = 4;
inline constexpr std::uint32_t kPartBytes = 512;  // one 16-byte piece per lane
inline constexpr int kStageBytesMax = 7168;
inline constexpr std::size_t kStaticSharedBytes = 9216;  // barriers, desks and alignment, rounded up

inline std::uint32_t bulkStageBytes(const GpuMachine& machine, int warpsPerBlock) {
  const std::size_t room = machine.sharedBytes > kStaticSharedBytes ? machine.sharedBytes - kStaticSharedBytes : 0;
  const std::size_t each = room / static_cast<std::size_t>(warpsPerBlock * kBulkStages) / 128 * 128;
  return static_cast<std::uint32_t>(std::min<std::size_t>(each, kStageBytesMax));
}

inline std::size_t bulkSharedBytesMax(const GpuMachine& machine) {
  return machine.sharedBytes > kStaticSharedBytes ? machine.sharedBytes - kStaticSharedBytes + 128 : 0;
}

// Blocks of which all are resident at once.
inline int residentBlocks(const GpuMachine& machine, int wanted) {
  return std::clamp(wanted, 1, std::max(1, machine.multiprocessors / machine.sharers));
}

inline LaunchShape planLaunch(const GpuMachine& machine, const Workload& work, bool bulk) {
  const Step step = work.step;
  if (step == Step::route) {
    const int blocks = std::clamp((work.rows + kRouteTokensPerBlock - 1) / kRouteTokensPerBlock, 1, kRouteBlocksMax);
    return {residentBlocks(machine, blocks), kRouteWarpsPerBlock, false};
  }
  if (work.tokensMax <= kSmallTokens) {
    // As many warps as there are pieces of a row for.
    const int warps = std::min(kSmallWarps, kernelWarpsMax(step));
    const auto pieces = std::int64_t{work.rows} * ((work.rowBytes + kPartBytes - 1) / kPartBytes);
    const int share = work.movesOnly ? kSmallMoveShare : 1, most = std::max(1, machine.multiprocessors / share);
    const std::int64_t blocks = (pieces + warps - 1) / warps;
    const int wanted = static_cast<int>(std::clamp<std::int64_t>(blocks, 1, most));
    return {residentBlocks(machine, work.sms > 0 ? std::min(work.sms, wanted) : wanted), warps, false};
  }
  const int standard = isCombine(step) ? kHtCombineMultiprocessors : kHtDispatchMultiprocessors;
  const bool useBulk = bulk && work.rowBytes >= 1024 && hasBulkKernel(step);
  const int warps = useBulk ? kBulkWarpsMax : kernelWarpsMax(step);
  return {residentBlocks(machine, work.sms > 0 ? work.sms : standard), warps, useBulk};
}

inline Parts planParts(const LaunchShape& shape, int rows, std::uint32_t rowBytes) {
  constexpr int kPartsMax = 64;  // rows that arrive (a flag's value) times parts fit 31 bits
  const int most = std::min(static_cast<int>((rowBytes + kPartBytes - 1) / kPartBytes), kPartsMax);
  const int wanted = shape.bulk || rows == 0 ? 1 : std::clamp(shape.warps() / rows, 1, std::max(1, most));
  const auto bytes = static_cast<std::uint32_t>(
      roundUp((rowBytes + static_cast<std::uint32_t>(wanted) - 1) / static_cast<std::uint32_t>(wanted), kPartBytes));
  return {static_cast<int>((rowBytes + bytes - 1) / bytes), bytes};
}

}  // namespace moe
