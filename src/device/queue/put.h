// A put moves data to a rank of another domain, whose window is not mapped here: bytes of this rank's window to its
// window, or one word. Steps post puts (the policy operation `put`); a transport carries them.
//
// Order: two ranks may have several connections, and a put names the one that it uses. A word lands after all bytes and
// words that were posted before it to that rank over that connection. Nothing else is ordered, not even the bytes
// within one put. Bytes may wait for the next word on their connection before they are sent.
//
// A ring passes puts from the steps of a rank to the thread that carries them out. Steps use it for sockets, and for
// any adapter whose queues they do not post to (mlx5/put_queue.h).
#pragma once

#include "device/queue/queue_wait.h"

namespace moe {

struct Put {
  std::uint64_t target;      // offset in the receiver's window
  std::uint64_t source;      // bytes: offset in this rank's window; word: the word itself
  std::uint32_t bytes;       // 0: a word of 8 bytes. Else a multiple of 4; the offsets are multiples of 4 too
  std::uint16_t to;          // rank
  std::uint16_t connection;  // any number; a transport takes it modulo its number of connections with that rank
};

// `connection`: only the lowest bits count.
MOE_HOST_DEVICE constexpr Put putBytes(int to, std::uint64_t target, std::uint64_t source, std::uint32_t bytes,
                                       std::uint64_t connection = 0) {
  return {target, source, bytes, static_cast<std::uint16_t>(to), static_cast<std::uint16_t>(connection)};
}
MOE_HOST_DEVICE constexpr Put putWord(int to, std::uint64_t target, std::uint64_t word, std::uint64_t connection = 0) {
  return putBytes(to, target, word, 0, connection);
}

// ---- The ring: many posters and one carrier. When it is full, posters wait; nothing is lost.
//
//   reserved   a poster takes the next index, waits until the put `count` before it is taken, fills the slot and
//              stores the slot's turn
//   taken      the carrier takes slots in order, each when its turn has come, and publishes how many it has taken
//
// The source of a put may still be read after its slot was taken. A poster that reuses the source must know by other
// means that the data has been sent.

struct PutSlot {
  Put put;
  std::uint64_t turn;  // index + 1 of the put in the slot; stored last
};

// The ring as posters see it.
struct PutRing {
  PutSlot* slots;
  std::uint64_t* reserved;     // shared by the posters
  const std::uint64_t* taken;  // written by the carrier
  std::uint32_t count;         // a power of two
};

// Takes the next `puts` slots, at most `count`, and waits until their previous content has been taken. For one thread.
template <class Memory>
MOE_LANES bool reservePuts(const Memory& memory, const PutRing& ring, std::uint32_t puts, const WaitLimit& limit,
                           std::uint64_t* index) {
  *index = memory.add(ring.reserved, puts);
  const std::uint64_t end = *index + puts;
  return waitUntil(memory, limit, [&] { return end - memory.load(ring.taken) <= ring.count; });
}

// Fills a slot. Everything that this thread has stored or seen becomes visible before the put. For one thread; on a
// GPU, each thread fills one slot of a batch.
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

// Takes the next put, if it is there. `taken`: puts taken since the ring was made. The carrier's thread calls it.
template <class Memory>
bool take(const Memory& memory, const PutRing& ring, std::uint64_t taken, Put* put) {
  const PutSlot& slot = ring.slots[taken & (ring.count - 1)];
  if (memory.load(&slot.turn) != taken + 1) return false;
  *put = slot.put;
  return true;
}

}  // namespace moe
