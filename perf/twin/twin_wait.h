// How the twin (twin/twin_ht_dispatch.h) fails and waits: every wait ends, and says for whom it was. GPU code.
#pragma once

#include "device/policy/cuda/flags.h"
#include "device/view/views.h"

namespace moe::perf::twin {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAll = 0xffffffffu;

MOE_LANES int lane() {
  return static_cast<int>(threadIdx.x) % kLanes;
}

MOE_LANES void report(const CommView& c, const Failure& failure) {
  if (atomicAdd(&c.state->failuresClaimed, 1u) != 0) return;
  Failure* to = c.failure;
  to->fault = failure.fault, to->phase = failure.phase, to->peer = failure.peer;
  to->index = failure.index, to->expected = failure.expected, to->actual = failure.actual;
  cuda_flags::storeRelease(&to->ready, 1);
}

MOE_LANES bool wasStopped(const CommView& c) {
  if (cuda_flags::loadRelaxed(&c.state->failuresClaimed) != 0) return true;
  if (cuda_flags::loadRelaxed(c.abort) == 0) return false;
  atomicAdd(&c.state->failuresClaimed, 1u);  // the host knows why
  return true;
}

// How long one lane has waited. The clock and the abort word are looked at once in many polls.
class Patience {
 public:
  // False when the wait is over: the rank was stopped, or the time is up, which is then reported as `late`.
  MOE_LANES bool lasts(const CommView& c, const Failure& late) {
    if (++polls_ % kPollsPerLook != 0) return true;
    const std::uint64_t now = cuda_flags::nanoseconds();
    if (begin_ == 0) begin_ = now, lookAt_ = now + kLookNs;
    if (now < lookAt_) return true;
    lookAt_ = now + kLookNs;
    if (wasStopped(c)) return false;
    if (now - begin_ < c.timeoutNs) return true;
    report(c, late);
    return false;
  }

 private:
  static constexpr unsigned kPollsPerLook = 64;
  static constexpr std::uint64_t kLookNs = 1000000;

  unsigned polls_ = 0;
  std::uint64_t begin_ = 0, lookAt_ = 0;
};

// One lane waits for one flag. The first polls acquire; later ones do not, as an acquiring load empties the first-level
// cache of a multiprocessor whose other warps still move rows.
MOE_LANES bool awaitFlag(const CommView& c, const Flag* flag, std::uint64_t epoch, Phase phase, int peer) {
  constexpr unsigned kPollsAtOnce = 16, kNapNs = 64;
  for (unsigned i = 0; i < kPollsAtOnce; ++i) {
    if (flagEpoch(cuda_flags::loadAcquire(flag)) >= epoch) return true;
  }
  Patience patience;
  for (;;) {
    const Flag word = cuda_flags::loadRelaxed(flag);
    if (flagEpoch(word) >= epoch) break;
    __nanosleep(kNapNs);
    const Failure late{0,
                       Fault::timeout,
                       phase,
                       peer,
                       0,
                       0,
                       static_cast<std::int64_t>(epoch),
                       static_cast<std::int64_t>(flagEpoch(word))};
    if (!patience.lasts(c, late)) return false;
  }
  cuda_flags::loadAcquire(flag);
  return true;
}

}  // namespace moe::perf::twin
