// How long flags are missing, for a rank that wants to know (CommView::waits). A wait looks at its flags one by one; so
// while it waits for one, it notes here for all that are still missing how long that has lasted.
#pragma once

#include <atomic>
#include <chrono>

#include "device/view/views.h"

namespace moe {

class HostStopwatch {
 public:
  HostStopwatch(const CommView& comm, Awaited awaited, std::uint64_t epoch)
      : waits_(awaited.phase == Phase::ownWarps ? nullptr : comm.waits), awaited_(awaited), epoch_(epoch) {
    if (waits_ != nullptr) begin_ = Clock::now();
  }

  // Of flags [first, n), every `stride`-th.
  void look(Flag* flags, int first, int n, int stride = 1) const {
    if (waits_ == nullptr) return;
    const auto ns =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin_).count());
    for (int i = first; i < n; i += stride) {
      if (flagEpoch(std::atomic_ref(flags[i]).load(std::memory_order_relaxed)) < epoch_) note(awaited_.rank(i), ns);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Several warps may wait for the same rank.
  void note(int rank, std::uint64_t ns) const {
    const std::atomic_ref longest(waits_[rank]);
    std::uint64_t seen = longest.load(std::memory_order_relaxed);
    while (seen < ns && !longest.compare_exchange_weak(seen, ns, std::memory_order_relaxed)) {
    }
  }

  std::uint64_t* waits_;
  Awaited awaited_;
  std::uint64_t epoch_;
  Clock::time_point begin_{};
};

}  // namespace moe
