// The machine operations that posters to a queue need, and how they wait. A Memory knows how the machine orders stores:
//
//   add(counter, n)         relaxed; returns the previous value
//   load(word)              acquire: everything that was stored before the word's publish is readable
//   publish(word, value)    release to other posters: everything that this thread has stored or seen
//   take(lock)              acquire; true if the lock was free. publish frees it
//   storeSegment(to, quad)  relaxed, 16 bytes
//   storeRecord(to, value)  release to an adapter: it finds in the queue everything that this thread has stored or seen
//   ring(to, value)         stores 8 bytes to the adapter's register, after the record and without delay
//   nanoseconds(), pause()  for waits
#pragma once

#include "device/lanes.h"

namespace moe {

// The host's orders for waits, including those that have begun. They lie in host-visible memory. Waits read them
// rarely, because a GPU reads them across PCIe.
struct WaitOrders {
  std::uint64_t abort;      // not 0: give up
  std::uint64_t timeoutNs;  // a wait that lasts this long ends
  std::uint64_t left = 0;   // not 0: some rank has left
};

// When a wait gives up.
struct WaitLimit {
  std::uint64_t beginNs;  // by the Memory's clock
  const WaitOrders* orders;
};

template <class Memory, class Condition>
MOE_LANES bool waitUntil(const Memory& memory, const WaitLimit& limit, Condition holds) {
  while (!holds()) {
    const WaitOrders& orders = *limit.orders;
    if (memory.load(&orders.abort) != 0) return false;
    if (memory.nanoseconds() - limit.beginNs >= memory.load(&orders.timeoutNs)) return false;
    memory.pause();
  }
  return true;
}

}  // namespace moe
