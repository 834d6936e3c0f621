// How a CPU waits for something that a peer does: it spins, gives the core away, then sleeps a little longer each time,
// as ranks may outnumber cores. It ends when the time is over or the rank is told to stop.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "device/host_pace.h"
#include "device/views.h"

namespace moe {

class HostPatience {
 public:
  // `pace`: what the calling thread has found out so far; NULL: nothing.
  explicit HostPatience(const CommView& comm, HostPace* pace = nullptr) : comm_(comm), pace_(pace) {}

  // True if this rank has failed or was told to stop.
  static bool stopped(const CommView& comm) {
    return std::atomic_ref(comm.state->failuresClaimed).load(std::memory_order_relaxed) != 0 ||
           std::atomic_ref(*comm.abort).load(std::memory_order_relaxed) != 0;
  }

  // What was waited for is there, and the next thing may come soon again. The time goes on.
  void anew() {
    if (yields_ > 0 && nap_ == Clock::duration::zero()) pace().noteSaved();
    spins_ = yields_ = 0, nap_ = {};
  }

  // Between looks. False if it is over; if that is because it is late, tellLate() has been called.
  template <class TellLate>
  bool goesOn(TellLate tellLate) {
    if (++spins_ <= kSpins) return true;
    const End end = rest();
    if (end == End::late) tellLate();
    return end == End::notYet;
  }

 private:
  enum class End { notYet, stopped, late };
  using Clock = HostPace::Clock;

  HostPace& pace() { return pace_ != nullptr ? *pace_ : own_; }

  End rest() {
    const auto now = Clock::now();
    if (yields_ < kYields && pace().mayYield(now)) {
      ++yields_;
      std::this_thread::yield();
      pace().noteYield(now, Clock::now());
      return End::notYet;
    }
    if (stopped(comm_)) return End::stopped;
    if (end_ == Clock::time_point{}) end_ = now + std::chrono::nanoseconds(comm_.timeoutNs);
    if (now >= end_) return End::late;
    nap_ = std::min(nap_ + nap_ / 4 + kNapStep, kNapMax);
    std::this_thread::sleep_for(nap_);
    return End::notYet;
  }

  static constexpr int kSpins = 200, kYields = 50;
  static constexpr Clock::duration kNapStep = std::chrono::microseconds(4), kNapMax = std::chrono::microseconds(500);

  const CommView& comm_;
  HostPace* pace_;
  HostPace own_;
  int spins_ = 0, yields_ = 0;
  Clock::duration nap_{};
  Clock::time_point end_{};
};

}  // namespace moe
