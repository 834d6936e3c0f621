// How a CUDA warp picks items whose rows another kernel of this GPU is making: pickReady. Only
// device/policy/cuda/warp.h includes it. The ready words of a GEMM lie in a few lines of one slice of the second-level
// cache. Polls of these lines hold up the GEMM's own traffic, so one warp of a block polls for all others. It counts
// all words that have reached the target, and stores the number in shared memory. When the number changes, each warp
// looks at its own items again.
#pragma once

#include "device/policy/cuda/patience.h"
#include "device/rows/ready_rows.h"

namespace moe::cuda_pick {

inline constexpr unsigned kAll = 0xffffffffu, kNapNsPerBlock = 32, kFollowNs = 100;
inline constexpr int kLanes = 32;

// State of the block, in shared memory: whether a warp polls, and how many words had reached the target at the last
// count.
struct Watch {
  std::uint64_t* poller;
  std::uint32_t* reached;
};

// The number of words that have reached the target. It is the same in all lanes.
template <ReadyList List>
MOE_LANES std::uint32_t countReached(const List& list, int lane) {
  const AllWords all = list.all();
  std::uint32_t count = 0;
  MOE_ROLLED
  for (int i = lane; i < all.count; i += kLanes) {
    count += hasReached(cuda_flags::loadOnDevice(all.words + i), list.target()) ? 1 : 0;
  }
  return __reduce_add_sync(kAll, count);
}

// Waits until more than `seen` words, the number that the block knew, have reached the target. notYet: they have.
template <ReadyList List>
MOE_LANES CudaPatience::End waitForMore(const CommView& comm, const List& list, const Watch& watch, std::uint32_t seen,
                                        CudaPatience& patience, int lane) {
  bool polls = false;
  CudaPatience::End end = CudaPatience::End::notYet;
  MOE_ROLLED
  for (unsigned turn = 1;; ++turn) {
    std::uint32_t now = 0;
    bool claims = polls;
    if (lane == 0) {
      now = cuda_flags::loadInBlock(watch.reached);
      if (now == seen && !polls) claims = cuda_flags::claimInBlock(watch.poller, 1) == 0;
    }
    now = __shfl_sync(kAll, now, 0);
    polls = __shfl_sync(kAll, claims ? 1 : 0, 0) != 0;
    if (polls && now == seen) {
      now = countReached(list, lane);
      if (now != seen && lane == 0) cuda_flags::storeInBlock(watch.reached, now);
    }
    if (now != seen) break;
    __nanosleep(polls ? gridDim.x * kNapNsPerBlock : kFollowNs);
    end = patience.look(comm, turn, Phase::expertRows, [&] { return comm.rank; });
    if (__any_sync(kAll, end != CudaPatience::End::notYet ? 1 : 0) != 0) break;
  }
  if (polls && lane == 0) cuda_flags::giveUpInBlock(watch.poller);
  return end;
}

// If items may be left, a warp picks few at a time, so that it checks sooner whether the rest may be left.
MOE_LANES unsigned lowestTwo(unsigned mask) {
  const unsigned behind = mask & (mask - 1);
  return mask ^ (behind & (behind - 1));
}

// Leaves the rest. A later kernel reads the rows, so this kernel must have acquired them.
MOE_LANES ReadyPick leaveRest() {
  cuda_flags::fenceOnDevice();
  __syncwarp();
  return {ReadyPick::kLeft, 0};
}

// All lanes look at one item each, turn by turn, until a turn has items that are ready.
template <ReadyList List>
MOE_LANES ReadyPick pickReady(const CommView& comm, const List& list, ReadyScan& scan, const Watch& watch, int lane) {
  const int n = list.count();
  const auto load = [](const std::uint32_t* word) { return cuda_flags::loadOnDevice(word); };
  CudaPatience patience(scan.since);
  __syncwarp();
  const bool mayLeave = list.mayLeave();
  const std::uint32_t wanted = mayLeave ? static_cast<std::uint32_t>(list.all().count) : 0;
  // Other warps may not have counted for a long time, because they move rows.
  if (mayLeave && countReached(list, lane) == wanted) return leaveRest();
  for (;;) {
    std::uint32_t seen = 0;
    if (lane == 0) seen = cuda_flags::loadInBlock(watch.reached);
    seen = __shfl_sync(kAll, seen, 0);
    if (__any_sync(kAll, scan.open != 0 ? 1 : 0) == 0) {
      if (scan.atEnd(n)) return {n, 0};
      scan.openWindow(n, kLanes, lane);
    }
    if (mayLeave && seen == wanted) return leaveRest();
    MOE_ROLLED
    for (int look = 0; look < scan.turns(kLanes); ++look) {
      const int turn = scan.turnAt(look, kLanes), i = scan.item(turn, kLanes, lane);
      const bool ready = scan.isOpen(turn) && missingWord(list, i, load) == list.words(i);
      unsigned mask = __ballot_sync(kAll, ready ? 1 : 0);
      if (mask == 0) continue;
      if (mayLeave) mask = lowestTwo(mask);
      if ((mask >> lane & 1) != 0) scan.close(turn);
      scan.lookNextAt(turn, kLanes);
      cuda_flags::fenceOnDevice();
      __syncwarp();  // now every lane has what one lane acquired
      return {scan.item(turn, kLanes, 0), mask};
    }
    const CudaPatience::End end = waitForMore(comm, list, watch, seen, patience, lane);
    scan.since = patience.since();
    if (__any_sync(kAll, end != CudaPatience::End::notYet ? 1 : 0) == 0) continue;
    const bool stops = __any_sync(kAll, end == CudaPatience::End::stopped ? 1 : 0) != 0;
    if (!stops && scan.open != 0) cuda_waits::fail(comm, lateItem(list, scan.firstOpen(kLanes, lane), load));
    __syncwarp();
    return {ReadyPick::kInVain, 0};
  }
}

}  // namespace moe::cuda_pick
