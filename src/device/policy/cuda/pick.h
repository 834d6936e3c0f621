// How a CUDA warp picks items whose rows another kernel of this GPU makes meanwhile: pickReady, for
// device/policy/cuda/warp.h alone. The words of a GEMM lie in a few lines of one slice of the second-level cache. What
// waits there keeps the GEMM's own traffic waiting, so warps nap the longer, the more of them there are.
#pragma once

#include "device/policy/cuda/patience.h"
#include "device/rows/ready_rows.h"

namespace moe::cuda_pick {

inline constexpr unsigned kAll = 0xffffffffu, kNapNsPerWarp = 32;
inline constexpr int kLanes = 32;

// All lanes look at an item each, turn by turn, until a turn has some that are there.
template <ReadyList List>
MOE_LANES ReadyPick pickReady(const CommView& comm, const List& list, ReadyScan& scan, int lane) {
  const int n = list.count();
  const auto load = [](const std::uint32_t* word) { return cuda_flags::loadOnDevice(word); };
  CudaPatience patience(scan.since);
  const unsigned nap = gridDim.x * (blockDim.x / kLanes) * kNapNsPerWarp;
  __syncwarp();
  for (unsigned polls = 1;; ++polls) {
    if (__any_sync(kAll, scan.open != 0 ? 1 : 0) == 0) {
      if (scan.atEnd(n)) return {n, 0};
      scan.openWindow(n, kLanes, lane);
    }
    MOE_ROLLED
    for (int look = 0; look < scan.turns(kLanes); ++look) {
      const int turn = scan.turnAt(look, kLanes), i = scan.item(turn, kLanes, lane);
      const bool ready = scan.isOpen(turn) && missingWord(list, i, load) == list.words(i);
      const unsigned mask = __ballot_sync(kAll, ready ? 1 : 0);
      if (mask == 0) continue;
      if (ready) scan.close(turn);
      scan.lookNextAt(turn, kLanes);
      cuda_flags::fenceOnDevice();
      __syncwarp();  // what one lane acquired is now every lane's
      return {scan.item(turn, kLanes, 0), mask};
    }
    __nanosleep(nap);
    const CudaPatience::End end = patience.look(comm, polls, [&] { return comm.rank; });
    scan.since = patience.since();
    if (__any_sync(kAll, end != CudaPatience::End::notYet ? 1 : 0) == 0) continue;
    const bool stops = __any_sync(kAll, end == CudaPatience::End::stopped ? 1 : 0) != 0;
    if (!stops && scan.open != 0) cuda_waits::fail(comm, lateItem(list, scan.firstOpen(kLanes, lane), load));
    __syncwarp();
    return {ReadyPick::kInVain, 0};
  }
}

}  // namespace moe::cuda_pick
