// How long each flag of a wait is missing, for communicators with statistics (CommView::waits). It is code of its own,
// which waits of other communicators step over: a clock in them would cost those who do not ask
// (docs/decisions/0069-statistics.md).
#pragma once

#include "device/policy/cuda/patience.h"

namespace moe::cuda_waits {

inline constexpr unsigned kAll = 0xffffffffu, kWatchNapNs = 64;
inline constexpr int kLanes = 32;

// Several blocks wait for the same rank.
MOE_LANES void noteWait(std::uint64_t* longest, std::uint64_t ns) {
  static_assert(sizeof(unsigned long long) == sizeof *longest);
  atomicMax(reinterpret_cast<unsigned long long*>(longest), static_cast<unsigned long long>(ns));
}

// Looks at all flags in turn, a lane at every 32nd, and notes when each is there; the wait that follows finds them
// there and acquires. At most 1024 ranks are 32 flags for each lane. False if the wait is in vain, which is reported.
// All lanes.
static MOE_SELDOM bool watch(const CommView& comm, const Flag* flags, int n, std::uint64_t epoch, Awaited awaited) {
  const int lane = static_cast<int>(threadIdx.x % kLanes), mine = (n - lane + kLanes - 1) / kLanes;
  std::uint64_t missing = (std::uint64_t{1} << mine) - 1;
  const std::uint64_t begin = cuda_flags::nanoseconds();
  CudaPatience patience;
  bool good = true;
  for (unsigned polls = 1; missing != 0; ++polls) {
    MOE_ROLLED
    for (int i = 0; i < mine; ++i) {
      const int index = lane + i * kLanes;
      if ((missing >> i & 1) == 0 || flagEpoch(cuda_flags::loadRelaxed(flags + index)) < epoch) continue;
      missing &= ~(std::uint64_t{1} << i);
      noteWait(comm.waits + awaited.rank(index), cuda_flags::nanoseconds() - begin);
    }
    if (missing == 0) break;
    __nanosleep(kWatchNapNs);
    const int first = lane + (__ffsll(static_cast<long long>(missing)) - 1) * kLanes;
    const CudaPatience::End end = patience.look(comm, polls, [&] { return awaited.rank(first); });
    if (end == CudaPatience::End::notYet) continue;
    if (end != CudaPatience::End::stopped) fail(comm, inVain(lateFlag(flags + first, epoch, awaited, first), end));
    good = false;
    break;
  }
  return __all_sync(kAll, good) != 0;
}

}  // namespace moe::cuda_waits
