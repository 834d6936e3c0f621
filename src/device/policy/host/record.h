// How a CPU records its steps (view/step_record.h). The calling thread records the whole step. Any of the step's
// threads records a wait that has to wait. HostStopwatch measures how long flags are missing, for ranks with statistics
// (CommView::waits). The words are relaxed atomics, because another thread may read them at any time.
#pragma once

#include <atomic>
#include <chrono>

#include "device/policy/host/step_clock.h"

namespace moe {

// Records a step from its construction to end().
class HostRecord {
 public:
  HostRecord(Step step, const StepParams& p) {
    StepRecorder* ring = p.comm.recorder;
    if (ring == nullptr || !rowOf(step).waits()) return;
    ring_ = ring;
    const std::uint64_t number = ring->steps + 1;
    record_ = ring->of(number);
    store(record_->number, number);
    store(record_->epoch, epochOf(rowOf(step), p));
    store(record_->begin, stepTime(*ring));
    store(record_->end, 0);
    store(record_->firstWaitEnd, 0);
    store(record_->worst, 0);
    store(record_->what, whatWord(step, p.phases, p.handle.number));
    store(record_->size, sizeOf(rowOf(step), p));
    store(ring->steps, number);
  }

  void end() const {
    if (record_ != nullptr) store(record_->end, stepTime(*ring_));
  }

 private:
  static void store(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_relaxed);
  }

  const StepRecorder* ring_ = nullptr;
  StepRecord* record_ = nullptr;
};

// One wait for flags. It records the ranks that it had to wait for, if its looks have found nothing for a while.
// Shorter waits are not worth the cost of reading the clock. Threads of a rank that record at the same time may
// overwrite each other. Locked instructions would avoid this, but they would wait for the rows that are still on their
// way to the peers.
class HostWaitRecord {
 public:
  HostWaitRecord(const CommView& comm, Awaited awaited)
      : ring_(awaited.phase == Phase::ownWarps ? nullptr : comm.recorder), awaited_(awaited) {}

  // Called when flag `i` is missing.
  void look(int i) {
    if (ring_ != nullptr && ++looks_ > kLooksUnnoted && missing_ != i) begin(i);
  }

  // Called when the wait for flag `i` is over. Flags are awaited in order, so the last one that was missing is the one
  // that arrived last.
  void over(int i, bool came) const {
    if (missing_ != i) return;
    const std::uint64_t now = stepTime(*ring_);
    StepRecord& record = latest();
    raise(record.worst, waitWord(awaited_.rank(i), now - begin_));
    if (came && load(record.firstWaitEnd) == 0) store(record.firstWaitEnd, now);
  }

 private:
  static constexpr int kLooksUnnoted = 208;  // some 5 us: a wait spins 200 times, then each look costs a yield

  // Records the awaited rank at once, in case the step never ends.
  void begin(int i) {
    missing_ = i;
    if (begin_ == 0) begin_ = stepTime(*ring_);
    raise(latest().worst, waitWord(awaited_.rank(i), 0));
  }
  StepRecord& latest() const { return *ring_->of(load(ring_->steps)); }

  static std::uint64_t load(std::uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); }
  static void store(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_relaxed);
  }
  static void raise(std::uint64_t& worst, std::uint64_t word) {
    if (load(worst) < word) store(worst, word);
  }

  StepRecorder* ring_;
  Awaited awaited_;
  int looks_ = 0, missing_ = -1;
  std::uint64_t begin_ = 0;
};

// Measures how long flags are missing. A wait looks at its flags one by one. While it waits for one flag, this object
// therefore records the time so far for all flags that are still missing.
class HostStopwatch {
 public:
  HostStopwatch(const CommView& comm, Awaited awaited, std::uint64_t epoch)
      : waits_(awaited.phase == Phase::ownWarps ? nullptr : comm.waits), awaited_(awaited), epoch_(epoch) {
    if (waits_ != nullptr) begin_ = Clock::now();
  }

  // Looks at every `stride`-th of flags [first, n).
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

  // Uses a maximum, because several warps may wait for the same rank.
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
