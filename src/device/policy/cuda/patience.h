// How a lane waits on a GPU, and how it reports a failed wait. From time to time a waiting lane reads the clock and the
// words that tell it to stop. The host's orders lie in host memory. Loads of one line of it are served one after
// another, a microsecond each, and hold up all other traffic through that slice of the second-level cache. Thousands of
// lanes may wait while kernels of the caller run. Therefore one lane of each tick reads the orders for all.
//
// For communicators with statistics (CommView::waits), `watch` measures how long each flag of a wait is missing. It is
// separate code, which other communicators skip, because reading a clock in every wait would cost those that do not ask
// for it (docs/decisions/0069-statistics.md).
#pragma once

#include "device/policy/cuda/flags.h"
#include "device/view/views.h"

namespace moe {

class CudaPatience {
 public:
  enum class End { notYet, stopped, late, left };

  CudaPatience() = default;
  // For several waits that share one deadline. The first of them began at `since`; 0: none has begun.
  explicit MOE_LANES CudaPatience(std::uint32_t since) : begin_(since) {}
  MOE_LANES std::uint32_t since() const { return begin_; }

  // Called between polls, after poll number `polls`, in a wait of `phase` for rank rankOf().
  template <class RankOf>
  MOE_LANES End look(const CommView& comm, unsigned polls, Phase phase, RankOf rankOf) {
    if (polls % kPollsPerLook != 0) return End::notYet;
    const std::uint32_t now = ticksOf(cuda_flags::nanoseconds());
    if (begin_ == 0) {
      begin_ = now;
      looked_ = now & kTickBits;
    }
    if (((looked_ ^ now) & kTickBits) == 0) return End::notYet;
    looked_ = (looked_ & ~kTickBits) | (now & kTickBits);
    CommState* state = comm.state;
    if (cuda_flags::loadRelaxed(&state->failuresClaimed) != 0) return End::stopped;
    if (isFirst(state, now) && !readOrders(comm)) return End::stopped;
    const std::uint32_t limit = cuda_flags::loadRelaxed(&state->ordersSeen.timeout);
    if (limit == 0) return End::notYet;
    const bool late = now - begin_ > longestWait(phase, limit - 1);
    if (cuda_flags::loadRelaxed(&state->ordersSeen.left) == 0 ||
        cuda_flags::loadRelaxed(comm.departed + rankOf()) == 0) {
      return late ? End::late : End::notYet;
    }
    looked_ += kTickBits + 1;
    return late || looked_ / (kTickBits + 1) > kLeftGrace ? End::left : End::notYet;
  }

 private:
  static MOE_LANES bool isFirst(CommState* state, std::uint32_t tick) {
    std::uint32_t* seen = &state->ordersSeen.tick;
    return cuda_flags::loadRelaxed(seen) != tick && atomicExch(seen, tick) != tick;
  }
  // False: waits must end.
  static MOE_LANES bool readOrders(const CommView& comm) {
    const WaitOrders& orders = *comm.orders;
    OrdersSeen* seen = &comm.state->ordersSeen;
    cuda_flags::storeOnDevice(&seen->timeout, 1 + ticksOf(cuda_flags::loadRelaxed(&orders.timeoutNs)));
    if (cuda_flags::loadRelaxed(&orders.left) != 0) cuda_flags::storeOnDevice(&seen->left, 1);
    if (cuda_flags::loadRelaxed(&orders.abort) == 0) return true;
    atomicAdd(&comm.state->failuresClaimed, 1u);  // the host knows the reason; later steps stop at once
    return false;
  }

  static constexpr unsigned kPollsPerLook = 64;
  // Time in ticks of 1.05 ms. A wait looks once per tick. Ticks have 32 bits to save registers, and differences are
  // valid for 52 days.
  static MOE_LANES std::uint32_t ticksOf(std::uint64_t nanoseconds) {
    return static_cast<std::uint32_t>(nanoseconds >> kTickShift);
  }
  static constexpr int kTickShift = 20;
  // The number of looks that must find that a rank has left, before the wait ends.
  static constexpr std::uint32_t kLeftGrace = 1 + (kLeftGraceNs >> kTickShift);

  // The low bits are the tick of the last look. The bits above count the looks that have found that the rank has left.
  // One word saves a register, because the waiting loops have none to spare.
  static constexpr std::uint32_t kTickBits = 0xfffff;
  static_assert(kLeftGrace < ~kTickBits / (kTickBits + 1));
  std::uint32_t looked_ = 0;
  std::uint32_t begin_ = 0;
};

namespace cuda_waits {

MOE_LANES void fail(const CommView& comm, const Failure& failure) {
  if (atomicAdd(&comm.state->failuresClaimed, 1u) != 0) return;
  Failure* to = comm.failure;
  to->fault = failure.fault;
  to->phase = failure.phase;
  to->peer = failure.peer;
  to->index = failure.index;
  to->expected = failure.expected;
  to->actual = failure.actual;
  cuda_flags::storeRelease(&to->ready, 1);
}

// The failure to report for a wait with this end.
MOE_LANES Failure inVain(Failure late, CudaPatience::End end) {
  if (end == CudaPatience::End::left) late.fault = Fault::left;
  return late;
}
MOE_LANES Failure lateFlag(const Flag* flag, std::uint64_t epoch, Awaited awaited, int index) {
  return lateRank(awaited.phase, awaited.rank(index), epoch, flagEpoch(cuda_flags::loadRelaxed(flag)));
}

inline constexpr unsigned kAll = 0xffffffffu, kWatchNapNs = 64;
inline constexpr int kLanes = 32;

// Uses a maximum, because several blocks wait for the same rank.
MOE_LANES void noteWait(std::uint64_t* longest, std::uint64_t ns) {
  static_assert(sizeof(unsigned long long) == sizeof *longest);
  atomicMax(reinterpret_cast<unsigned long long*>(longest), static_cast<unsigned long long>(ns));
}

// Looks at all flags in turn, with a lane for every 32nd flag, and notes when each arrives. The wait that follows finds
// the flags and acquires them. With at most 1024 ranks, a lane has at most 32 flags. False: the wait failed, which is
// reported. All lanes call it.
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
    const CudaPatience::End end = patience.look(comm, polls, awaited.phase, [&] { return awaited.rank(first); });
    if (end == CudaPatience::End::notYet) continue;
    if (end != CudaPatience::End::stopped) fail(comm, inVain(lateFlag(flags + first, epoch, awaited, first), end));
    good = false;
    break;
  }
  return __all_sync(kAll, good) != 0;
}

}  // namespace cuda_waits

}  // namespace moe
