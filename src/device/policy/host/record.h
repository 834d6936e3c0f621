// How a CPU records its steps (view/step_record.h): the calling thread the whole step, and any of its threads a wait
// that has to wait. The words are relaxed atomics, because another thread may read them at any time.
#pragma once

#include <atomic>
#include <chrono>

#include "device/view/step_record.h"

namespace moe {

inline std::uint64_t hostStepClock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Records a step from its construction to end().
class HostRecord {
 public:
  HostRecord(Step step, const StepParams& p) {
    StepRecorder* ring = p.comm.recorder;
    if (ring == nullptr || !isRecorded(step)) return;
    const std::uint64_t number = ring->steps + 1;
    record_ = ring->of(number);
    store(record_->number, number);
    store(record_->epoch, epochOf(step, p));
    store(record_->begin, hostStepClock());
    store(record_->end, 0);
    store(record_->firstWaitEnd, 0);
    store(record_->worst, 0);
    store(record_->what, whatWord(step, p.phases, p.handle.number));
    store(record_->size, sizeOf(step, p));
    store(ring->steps, number);
  }

  void end() const {
    if (record_ != nullptr) store(record_->end, hostStepClock());
  }

 private:
  static void store(std::uint64_t& word, std::uint64_t value) {
    std::atomic_ref(word).store(value, std::memory_order_relaxed);
  }

  StepRecord* record_ = nullptr;
};

// One wait for flags, which notes only what it had to wait for. It asks for the time when a flag is missing and when
// that flag has come, and at no other time.
class HostWaitRecord {
 public:
  HostWaitRecord(const CommView& comm, Awaited awaited)
      : ring_(awaited.phase == Phase::ownWarps ? nullptr : comm.recorder), awaited_(awaited) {}

  // Flag `i` is missing. Says whom the step waits for, should it never end.
  void missing(int i) {
    if (ring_ == nullptr) return;
    if (begin_ == 0) begin_ = hostStepClock();
    raise(waitWord(awaited_.rank(i), 0));
  }

  // It has come, or nobody waits for it any more. Flags are waited for in order, so the last one that was missing is
  // the one that came last of all.
  void over(int i, bool came) const {
    if (ring_ == nullptr) return;
    const std::uint64_t now = hostStepClock();
    raise(waitWord(awaited_.rank(i), now - begin_));
    if (!came) return;
    std::uint64_t none = 0;
    std::atomic_ref(record()->firstWaitEnd).compare_exchange_strong(none, now, std::memory_order_relaxed);
  }

 private:
  StepRecord* record() const { return ring_->of(std::atomic_ref(ring_->steps).load(std::memory_order_relaxed)); }

  void raise(std::uint64_t word) const {
    const std::atomic_ref worst(record()->worst);
    std::uint64_t seen = worst.load(std::memory_order_relaxed);
    while (seen < word && !worst.compare_exchange_weak(seen, word, std::memory_order_relaxed)) {
    }
  }

  StepRecorder* ring_;
  Awaited awaited_;
  std::uint64_t begin_ = 0;
};

}  // namespace moe
