// A GPU policy whose waits note how long each flag was missing (CommView::waits), for kernels of their own: a clock in
// the waits of other kernels would cost those who do not ask (docs/decisions/0069-statistics.md).
//
// The CUDA warp that polls for its block first looks at all flags in turn, a lane at every 32nd, and notes when each is
// there. It then waits as the base does, which finds them there and acquires.
#pragma once

#include "device/policy/cuda/patience.h"
#include "device/policy/cuda/puts.h"

namespace moe {

template <class Base>
class CudaTimed : public Base {
 public:
  using Base::Base;
  using Wide = CudaTimed<typename Base::Wide>;
  MOE_LANES Wide wide() const { return {}; }

  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    return Base::waitPolling(flags, n, awaited, [&] {
      const bool watches = awaited.phase != Phase::ownWarps;
      if (watches && !__all_sync(Base::kAll, watch(comm, flags, n, epoch, awaited))) return false;
      return Base::pollAll(comm, flags, n, epoch, awaited);
    });
  }

 private:
  // False if the wait is in vain, which is reported. One lane, of its flags: at most 1024 ranks are 32 for each.
  MOE_LANES bool watch(const CommView& comm, const Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    const int mine = (n - Base::lane() + Base::kLanes - 1) / Base::kLanes;
    std::uint64_t missing = (std::uint64_t{1} << mine) - 1;
    const std::uint64_t begin = cuda_flags::nanoseconds();
    CudaPatience patience;
    for (unsigned polls = 1; missing != 0; ++polls) {
      MOE_ROLLED
      for (int i = 0; i < mine; ++i) {
        const int index = Base::lane() + i * Base::kLanes;
        if ((missing >> i & 1) == 0 || flagEpoch(cuda_flags::loadRelaxed(flags + index)) < epoch) continue;
        missing &= ~(std::uint64_t{1} << i);
        note(comm.waits + awaited.rank(index), cuda_flags::nanoseconds() - begin);
      }
      if (missing == 0) break;
      __nanosleep(kNapNs);
      const int first = Base::lane() + (__ffsll(static_cast<long long>(missing)) - 1) * Base::kLanes;
      const CudaPatience::End end = patience.look(comm, polls, [&] { return awaited.rank(first); });
      if (end == CudaPatience::End::notYet) continue;
      if (end != CudaPatience::End::stopped) {
        Base::laneFail(comm, Base::inVain(Base::lateFlag(flags + first, epoch, awaited, first), end));
      }
      return false;
    }
    return true;
  }
  // Several blocks wait for the same rank.
  static MOE_LANES void note(std::uint64_t* longest, std::uint64_t ns) {
    static_assert(sizeof(unsigned long long) == sizeof *longest);
    atomicMax(reinterpret_cast<unsigned long long*>(longest), static_cast<unsigned long long>(ns));
  }

  static constexpr unsigned kNapNs = 64;
};

}  // namespace moe
