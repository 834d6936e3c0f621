// What goes to a rank of another domain, whose window is not mapped here: bytes of this rank's window to its window, or
// one word. Steps post puts (the policy operation `put`); a transport carries them.
//
// Order: two ranks may have several connections, and a put says which one it takes. A word lands after all bytes and
// words that were posted before it to that rank by that connection. Nothing else is ordered, not even the bytes within
// one put. Bytes may wait for the next word on their connection before they leave.
//
// A ring brings puts from the steps of a rank to the thread that carries them out. It is how steps reach sockets, and
// any adapter whose queues they do not post to (mlx5/put_queue.h).
#pragma once

#include "device/queue/queue_wait.h"

namespace moe {

struct Put {
  std::uint64_t target;      // offset in the receiver's window
  std::uint64_t source;      // offset in this rank's window; of a word: the word
  std::uint32_t bytes;       // 0: a word of 8 bytes. Else multiples of 4, as are the offsets
  std::uint16_t to;          // rank
  std::uint16_t connection;  // any number: a transport takes it modulo those that it has with a rank
};

// `connection`: only its lowest bits count.
MOE_HOST_DEVICE constexpr Put putBytes(int to, std::uint64_t target, std::uint64_t source, std::uint32_t bytes,
                                       std::uint64_t connection = 0) {
  return {target, source, bytes, static_cast<std::uint16_t>(to), static_cast<std::uint16_t>(connection)};
}
MOE_HOST_DEVICE constexpr Put putWord(int to, std::uint64_t target, std::uint64_t word, std::uint64_t connection = 0) {
  return putBytes(to, target, word, 0, connection);
}

// ---- The ring: many posters and one carrier. When it is full, posters wait; nothing is lost.
//
//   reserved   a poster takes the next index, waits until the slot of `count` before is taken, fills the slot and
//              stores its turn
//   taken      the carrier takes slots in order, each when its turn has come, and says how many it has taken
//
// The slot's source may still be read after that. Whoever reuses it must know by other means that it has left.

struct PutSlot {
  Put put;
  std::uint64_t turn;  // index + 1 of the put that is in it; stored last
};

// The ring as posters see it.
struct PutRing {
  PutSlot* slots;
  std::uint64_t* reserved;     // shared by the posters
  const std::uint64_t* taken;  // written by the carrier
  std::uint32_t count;         // a power of two
};

// Takes the next `puts` slots, at most `count`, and waits until their former content has been taken. One thread.
template <class Memory>
MOE_LANES bool reservePuts(const Memory& memory, const PutRing& ring, std::uint32_t puts, const WaitLimit& limit,
                           std::uint64_t* index) {
  *index = memory.add(ring.reserved, puts);
  const std::uint64_t end = *index + puts;
  return waitUntil(memory, limit, [&] { return end - memory.load(ring.taken) <= ring.count; });
}

// Fills a slot. All that this thread has stored or seen comes before the put. One thread; each thread of a GPU fills
// one slot of a batch.
template <class Memory>
MOE_LANES void fillPut(const Memory& memory, const PutRing& ring, std::uint64_t index, const Put& put) {
  PutSlot* slot = ring.slots + (index & (ring.count - 1));
  slot->put = put;
  memory.publish(&slot->turn, index + 1);
}

template <class Memory>
MOE_LANES bool post(const Memory& memory, const PutRing& ring, const Put& put, const WaitLimit& limit) {
  std::uint64_t index;
  if (!reservePuts(memory, ring, 1, limit, &index)) return false;
  fillPut(memory, ring, index, put);
  return true;
}

// Takes the next put, number `taken` since the ring was made, if it is there. The carrier's thread calls it.
template <class Memory>
bool take(const Memory& memory, const PutRing& ring, std::uint64_t taken, Put* put) {
  const PutSlot& slot = ring.slots[taken & (ring.count - 1)];
  if (memory.load(&slot.turn) != taken + 1) return false;
  *put = slot.put;
  return true;
}

}  // namespace moe
