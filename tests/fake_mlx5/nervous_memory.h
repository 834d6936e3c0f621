// The host's Memory with one change: a thread often yields its core just before others see what it does. So posters
// collide in the middle of a step, which otherwise seldom happens.
#pragma once

#include "device/policy/host/queue_memory.h"
#include "support/base/rng.h"

namespace moe::test {

class NervousMemory : public HostQueueMemory {
 public:
  template <class Word>
  void publish(Word* word, Word value) const {
    hesitate();
    HostQueueMemory::publish(word, value);
  }
  void storeRecord(std::uint32_t* to, std::uint32_t value) const {
    hesitate();
    HostQueueMemory::storeRecord(to, value);
  }
  void ring(std::uint64_t* to, std::uint64_t value) const {
    hesitate();
    HostQueueMemory::ring(to, value);
  }

 private:
  // Relaxed, so that the counter does not order what it is to disturb.
  static void hesitate() {
    static std::atomic<std::uint64_t> calls{0};
    if (mix(calls.fetch_add(1, std::memory_order_relaxed)) % 3 == 0) std::this_thread::yield();
  }
};

}  // namespace moe::test
