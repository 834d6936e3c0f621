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

// When a wait gives up.
struct WaitLimit {
  std::uint64_t deadlineNs;    // by the Memory's clock
  const std::uint64_t* abort;  // not 0: give up
};

template <class Memory, class Condition>
MOE_LANES bool waitUntil(const Memory& memory, const WaitLimit& limit, Condition holds) {
  while (!holds()) {
    if (memory.load(limit.abort) != 0 || memory.nanoseconds() >= limit.deadlineNs) return false;
    memory.pause();
  }
  return true;
}

}  // namespace moe
