// What a thread has learned about giving its core away. Beside a neighbour that computes, a yield costs a time slice of
// several milliseconds. A nap costs less than 100 us even there, because the scheduler prefers those who have slept
// (docs/decisions/0052-what-a-yield-costs.md).
#pragma once

#include <algorithm>
#include <chrono>

namespace moe {

// An account in time: each wait that a yield ends saves a nap, each yield that costs a time slice is paid for. Where
// nothing is left there are naps alone, for a while that doubles each time that this comes out again.
class HostPace {
 public:
  using Clock = std::chrono::steady_clock;

  bool mayYield(Clock::time_point now) const { return now >= yieldsAgain_; }

  // One yield. What is shorter than a time slice was a peer's turn, and no loss.
  void noteYield(Clock::time_point begin, Clock::time_point end) {
    const auto cost = end - begin;
    if (cost < kTimeSlice) return;
    balance_ -= cost;
    if (balance_ > Clock::duration::zero()) return;
    balance_ = {};
    yieldsAgain_ = end + pause_;
    pause_ = std::min(2 * pause_, kPauseMax);
  }

  // What was waited for came in a yield.
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
