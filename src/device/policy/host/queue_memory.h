// The Memory of queue_wait.h for CPU threads. On x86-64 an adapter's register is mapped write-combining. A locked
// instruction, such as an exchange, also flushes the write-combining buffers.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

#include "device/queue/queue_wait.h"

namespace moe {

class HostQueueMemory {
 public:
  std::uint64_t add(std::uint64_t* counter, std::uint64_t n) const {
    return std::atomic_ref(*counter).fetch_add(n, std::memory_order_relaxed);
  }

  template <class Word>
  Word load(const Word* word) const {
    return std::atomic_ref(*const_cast<Word*>(word)).load(std::memory_order_acquire);
  }
  template <class Word>
  void publish(Word* word, Word value) const {
    std::atomic_ref(*word).exchange(value, std::memory_order_acq_rel);
  }
  bool take(std::uint32_t* lock) const { return std::atomic_ref(*lock).exchange(1, std::memory_order_acquire) == 0; }

  void storeSegment(Quad* to, const Quad& segment) const { *to = segment; }
  void storeRecord(std::uint32_t* to, std::uint32_t value) const { publish(to, value); }
  // The poster's next publish flushes it to the adapter.
  void ring(std::uint64_t* to, std::uint64_t value) const {
    std::atomic_ref(*to).store(value, std::memory_order_release);
  }

  std::uint64_t nanoseconds() const {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  void pause() const { std::this_thread::yield(); }
};

// The current timeout of waits.
inline std::chrono::nanoseconds timeoutOf(const WaitOrders& orders) {
  return std::chrono::nanoseconds(HostQueueMemory().load(&orders.timeoutNs));
}

}  // namespace moe
