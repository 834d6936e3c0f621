// A point in time after which a wait gives up, and a wait that polls. Every blocking call of the library takes one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace moe {

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  static Deadline after(std::chrono::milliseconds duration) { return Deadline(Clock::now() + duration); }

  bool expired() const { return Clock::now() >= at_; }

  // Milliseconds left, rounded up and at least 0: what poll() takes.
  int leftMs() const {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(at_ - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1 << 30));
  }

  Clock::time_point at() const { return at_; }

 private:
  explicit Deadline(Clock::time_point at) : at_(at) {}
  Clock::time_point at_;
};

// Waits on the CPU for a condition that nobody signals: checks it, sleeps a moment, checks again.
// Returns true once holds(), and false at the deadline or when giveUp().
template <class Holds, class GiveUp>
bool pollUntil(const Deadline& deadline, Holds holds, GiveUp giveUp) {
  while (!holds()) {
    if (giveUp() || deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace moe
