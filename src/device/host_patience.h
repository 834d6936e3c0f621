// How a CPU waits for something that a peer does: it spins, gives the core away, then sleeps a little longer each time,
// as ranks may outnumber cores. It ends when the time is over, when the awaited rank has left, or when this rank is
// told to stop.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "device/views.h"

namespace moe {

class HostPatience {
 public:
  explicit HostPatience(const CommView& comm) : comm_(comm) {}

  // True if this rank has failed or was told to stop.
  static bool stopped(const CommView& comm) {
    return std::atomic_ref(comm.state->failuresClaimed).load(std::memory_order_relaxed) != 0 ||
           std::atomic_ref(*comm.abort).load(std::memory_order_relaxed) != 0;
  }

  // The next thing may come soon again. The time goes on.
  void anew() { spins_ = 0, nap_ = {}; }

  // Between looks. False if it is over. If that is because it is in vain, report() has been called, with what lateOf()
  // says of a wait that is late, or with the same of a rank that has left.
  template <class LateOf, class Report>
  bool goesOn(LateOf lateOf, Report report) {
    const End end = pause([&] { return lateOf().peer; });
    if (end == End::late || end == End::left) {
      Failure failure = lateOf();
      if (end == End::left) failure.fault = Fault::left;
      report(failure);
    }
    return end == End::notYet;
  }

 private:
  enum class End { notYet, stopped, late, left };

  template <class RankOf>
  End pause(RankOf rankOf) {
    ++spins_;
    if (spins_ <= kSpins) return End::notYet;
    if (spins_ <= kSpins + kYields) {
      std::this_thread::yield();
      return End::notYet;
    }
    if (stopped(comm_)) return End::stopped;
    const auto now = Clock::now();
    if (end_ == Clock::time_point{}) end_ = now + std::chrono::nanoseconds(comm_.timeoutNs);
    if (hasLeft(rankOf(), now)) return End::left;
    if (now >= end_) return End::late;
    nap_ = nap_ < kNapMax ? nap_ + kNapStep : kNapMax;
    std::this_thread::sleep_for(nap_);
    return End::notYet;
  }

  using Clock = std::chrono::steady_clock;

  // For so long that what it has sent would have been seen.
  bool hasLeft(int rank, Clock::time_point now) {
    if (std::atomic_ref(comm_.departed[rank]).load(std::memory_order_acquire) == 0) return false;
    if (leftRank_ != rank) leftRank_ = rank, leftEnd_ = now + std::chrono::nanoseconds(kLeftGraceNs);
    return now >= leftEnd_;
  }

  static constexpr int kSpins = 200, kYields = 50;
  static constexpr std::chrono::microseconds kNapStep{20}, kNapMax{500};

  const CommView& comm_;
  int spins_ = 0;
  std::chrono::microseconds nap_{};
  Clock::time_point end_{}, leftEnd_{};
  int leftRank_ = -1;
};

}  // namespace moe
