// What posters to a queue need from the machine, and how they wait. A Memory knows how the machine orders stores:
//
//   add(counter, n)         relaxed; returns the value before
//   load(word)              acquire: what was stored before the word's publish is readable
//   publish(word, value)    release to other posters: all that this thread has stored or seen
//   take(lock)              acquire; true if it was free. Freed by publish
//   storeSegment(to, quad)  relaxed, 16 bytes
//   storeRecord(to, value)  release to an adapter: it finds in the queue what this thread has stored or seen
//   ring(to, value)         after the record, and on its way at once; 8 bytes to the adapter's register
//   nanoseconds(), pause()  for waits
#pragma once

#include "device/lanes.h"

namespace moe {

// What the host tells waits, also those under way. It lies in host-visible memory. Whoever waits reads it rarely: for a
// GPU it is across PCIe.
struct WaitOrders {
  std::uint64_t abort;      // not 0: give up
  std::uint64_t timeoutNs;  // a wait ends when it has taken so long
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
