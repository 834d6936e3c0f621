// How a CPU waits for a peer. It spins, then yields the core unless that is expensive, then sleeps a little longer each
// time, up to 0.5 ms, because ranks may outnumber cores. The wait fails when the timeout has passed, when the awaited
// rank has left, or when this rank is told to stop.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "device/policy/host/pace.h"
#include "device/policy/host/queue_memory.h"
#include "device/view/views.h"

namespace moe {

class HostPatience {
 public:
  // `pace`: the experience of the calling thread so far; NULL: none. `since`: for several waits that share one
  // deadline, the time in ticks when the first began; 0: none has begun.
  explicit HostPatience(const CommView& comm, HostPace* pace = nullptr, std::uint32_t* since = nullptr)
      : comm_(comm), pace_(pace), since_(since) {}

  // True if this rank has failed or was told to stop.
  static bool stopped(const CommView& comm) {
    return std::atomic_ref(comm.state->failuresClaimed).load(std::memory_order_relaxed) != 0 ||
           HostQueueMemory().load(&comm.orders->abort) != 0;
  }

  // Starts to spin again, because the awaited event has happened and the next one may follow soon. The timeout is not
  // restarted.
  void anew() {
    const bool yieldedOnly = yieldsEnd_ != Clock::time_point{} && nap_ == Clock::duration::zero();
    if (yieldedOnly) pace().noteSaved();
    spins_ = 0;
    nap_ = {};
    yieldsEnd_ = {};
  }

  // Called between looks. False: the wait is over. If it failed, report() has been called with lateOf(), whose fault is
  // changed if the awaited rank has left.
  template <class LateOf, class Report>
  bool goesOn(LateOf lateOf, Report report) {
    if (++spins_ <= kSpins) return true;
    const auto now = Clock::now();
    if (yieldsEnd_ == Clock::time_point{}) yieldsEnd_ = now + kYieldTime;
    if (now < yieldsEnd_ && pace().mayYield(now)) {
      std::this_thread::yield();
      pace().noteYield(now, Clock::now());
      return true;
    }
    if (!mayGoOn(lateOf, report)) return false;
    nap_ = std::min(nap_ + nap_ / 4 + kNapStep, kNapMax);
    std::this_thread::sleep_for(nap_);
    return true;
  }

  // The same for callers that pause in another way.
  template <class LateOf, class Report>
  bool mayGoOn(LateOf lateOf, Report report) {
    if (stopped(comm_)) return false;
    const auto now = Clock::now();
    if (begin_ == Clock::time_point{}) begin(now);
    Failure failure = lateOf();
    const bool left = hasLeft(failure.peer, now);
    if (!left && now - begin_ < longestWait(failure.phase, timeoutOf(*comm_.orders))) return true;
    if (left) failure.fault = Fault::left;
    report(failure);
    return false;
  }

 private:
  using Clock = HostPace::Clock;

  HostPace& pace() { return pace_ != nullptr ? *pace_ : own_; }

  void begin(Clock::time_point now) {
    begin_ = now;
    if (since_ == nullptr) return;
    const auto ticks =
        static_cast<std::uint32_t>(std::chrono::nanoseconds(now.time_since_epoch()).count() >> kTickShift);
    if (*since_ == 0) *since_ = std::max(ticks, 1u);
    begin_ = now - std::chrono::nanoseconds(std::int64_t{ticks - *since_} << kTickShift);
  }
  // Ticks of 66 us. Differences are valid for 78 hours.
  static constexpr int kTickShift = 16;

  // True when a rank left so long ago that everything that it sent would have been seen.
  bool hasLeft(int rank, Clock::time_point now) {
    if (std::atomic_ref(comm_.departed[rank]).load(std::memory_order_acquire) == 0) return false;
    if (leftRank_ != rank) {
      leftRank_ = rank;
      leftEnd_ = now + std::chrono::nanoseconds(kLeftGraceNs);
    }
    return now >= leftEnd_;
  }

  static constexpr int kSpins = 200;
  static constexpr Clock::duration kYieldTime = std::chrono::milliseconds(1);
  static constexpr Clock::duration kNapStep = std::chrono::microseconds(4), kNapMax = std::chrono::microseconds(500);

  const CommView& comm_;
  HostPace* pace_;
  std::uint32_t* since_;
  HostPace own_;
  int spins_ = 0;
  Clock::duration nap_{};
  Clock::time_point begin_{}, leftEnd_{}, yieldsEnd_{};
  int leftRank_ = -1;
};

}  // namespace moe
