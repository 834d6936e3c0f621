// How a lane waits on a GPU. Once in a while it looks at the clock and at the words that tell it to stop.
#pragma once

#include "device/policy/cuda/flags.h"
#include "device/view/views.h"

namespace moe {

class CudaPatience {
 public:
  enum class End { notYet, stopped, late, left };

  // To be called between polls, of which this is number `polls`, for rank rankOf().
  template <class RankOf>
  MOE_LANES End look(const CommView& comm, unsigned polls, RankOf rankOf) {
    if (polls % kPollsPerLook != 0) return End::notYet;
    const std::uint64_t now = cuda_flags::nanoseconds();
    if (begin_ == 0) begin_ = now, lookAt_ = now + kLookNs;
    if (now < lookAt_) return End::notYet;
    lookAt_ = now + kLookNs;
    if (!mayWait(comm)) return End::stopped;
    const bool left = cuda_flags::loadRelaxed(comm.departed + rankOf()) != 0;
    const std::uint64_t timeout = cuda_flags::loadRelaxed(&comm.orders->timeoutNs);
    if (left && now - begin_ + kLeftGraceNs < timeout) begin_ = now + kLeftGraceNs - timeout;
    if (now - begin_ < timeout) return End::notYet;
    return left ? End::left : End::late;
  }

 private:
  // The orders are in host memory: they are looked at rarely.
  static MOE_LANES bool mayWait(const CommView& comm) {
    if (cuda_flags::loadRelaxed(&comm.state->failuresClaimed) != 0) return false;
    if (cuda_flags::loadRelaxed(&comm.orders->abort) == 0) return true;
    atomicAdd(&comm.state->failuresClaimed, 1u);  // the host knows why; later steps stop at once
    return false;
  }

  static constexpr unsigned kPollsPerLook = 64;
  static constexpr std::uint64_t kLookNs = 1000000;

  std::uint64_t begin_ = 0, lookAt_ = 0;
};

}  // namespace moe
