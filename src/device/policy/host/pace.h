// A thread's experience with yielding its core. Next to a neighbour that computes, a yield costs a time slice of
// several milliseconds. A nap costs less than 100 us even there, because the scheduler prefers threads that have slept
// (docs/decisions/0052-what-a-yield-costs.md).
#pragma once

#include <algorithm>
#include <chrono>

namespace moe {

// A balance of time. A wait that ends in a yield adds the time of a nap; a yield that costs a time slice subtracts that
// cost. When the balance reaches zero, the thread only naps for a while. This pause doubles each time that it happens
// again.
class HostPace {
 public:
  using Clock = std::chrono::steady_clock;

  bool mayYield(Clock::time_point now) const { return now >= yieldsAgain_; }

  // Accounts for one yield. A yield shorter than a time slice gave a peer its turn, and is no loss.
  void noteYield(Clock::time_point begin, Clock::time_point end) {
    const auto cost = end - begin;
    if (cost < kTimeSlice) return;
    balance_ -= cost;
    if (balance_ > Clock::duration::zero()) return;
    balance_ = {};
    yieldsAgain_ = end + pause_;
    pause_ = std::min(2 * pause_, kPauseMax);
  }

  // Accounts for a wait that ended in a yield.
  void noteSaved() {
    balance_ = std::min(balance_ + kNap, kBalanceMax);
    if (balance_ == kBalanceMax) pause_ = kPauseMin;
  }

 private:
  static constexpr Clock::duration kNap = std::chrono::microseconds(60), kTimeSlice = std::chrono::milliseconds(1);
  static constexpr Clock::duration kBalanceMax = std::chrono::milliseconds(12);
  static constexpr Clock::duration kPauseMin = std::chrono::milliseconds(50), kPauseMax = std::chrono::seconds(1);

  Clock::duration balance_{}, pause_ = kPauseMin;
  Clock::time_point yieldsAgain_{};
};

}  // namespace moe
