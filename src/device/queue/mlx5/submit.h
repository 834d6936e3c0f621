// How WQEs are posted, by many posters at once: reserve slots, write them, publish in order, ring. The same text runs
// on the host and on a GPU, over a Memory (queue_wait.h).
//
// A wait that fails leaves a gap in the order, at which all later posters fail: the queue is then of no more use, and
// its rank has failed. That is the case after an error completion too.
#pragma once

#include "device/queue/mlx5/send_queue.h"
#include "device/queue/queue_wait.h"

namespace moe::mlx5 {

// Tells the adapter of all that is ready, unless somebody does so now. Under a lock: a record that went back would lose
// WQEs.
template <class Memory>
MOE_LANES void ringReady(const Memory& memory, const SendQueue& queue) {
  SendCounters* counters = queue.counters;
  if (memory.load(&counters->posted) == memory.load(&counters->ready) || !memory.take(&counters->bell)) return;
  const std::uint64_t ready = memory.load(&counters->ready);
  if (memory.load(&counters->posted) != ready) {
    memory.storeRecord(queue.record + kSendRecord, sendRecord(ready));
    memory.ring(queue.doorbell, doorbellValue(queue.queuePair, ready));
    memory.publish(&counters->posted, ready);
  }
  memory.publish(&counters->bell, std::uint32_t{0});
}

// Takes the next `slots` slots, at most slotCount, and waits until the adapter is done with what was in them. It rings
// while it waits: what is in its way may have been published without a ring.
template <class Memory>
MOE_LANES bool reserve(const Memory& memory, const SendQueue& queue, std::uint32_t slots, const WaitLimit& limit,
                       std::uint64_t* index) {
  *index = memory.add(&queue.counters->reserved, slots);
  const std::uint64_t end = *index + slots;
  return waitUntil(memory, limit, [&] {
    if (end - memory.load(queue.completed) <= queue.slotCount) return true;
    ringReady(memory, queue);
    return false;
  });
}

// Writes a WQE whose head names `index`. One thread; those of a GPU may each write one of a batch.
template <class Memory, int kSegments>
MOE_LANES void writeWqe(const Memory& memory, const SendQueue& queue, std::uint64_t index, const Wqe<kSegments>& wqe) {
  for (int i = 0; i < kSegments; ++i) memory.storeSegment(segmentAt(queue, index, i), wqe.segment[i]);
}

// Says that the slots are written, after all posters before have said so of theirs.
template <class Memory>
MOE_LANES bool publishSlots(const Memory& memory, const SendQueue& queue, std::uint64_t index, std::uint32_t slots,
                            const WaitLimit& limit) {
  std::uint64_t* ready = &queue.counters->ready;
  if (!waitUntil(memory, limit, [&] { return memory.load(ready) == index; })) return false;
  memory.publish(ready, index + slots);
  return true;
}

// Returns when the adapter has been told of all slots before `end`, by this poster or by another one with it.
template <class Memory>
MOE_LANES bool ringUpTo(const Memory& memory, const SendQueue& queue, std::uint64_t end, const WaitLimit& limit) {
  return waitUntil(memory, limit, [&] {
    ringReady(memory, queue);
    return memory.load(&queue.counters->posted) >= end;
  });
}

// Posts a batch of `slots` slots, which write(index of the first) fills by writeWqe, and rings once. Its last WQE must
// be signalled: the slots of a queue come back by completions alone.
template <class Memory, class Write>
MOE_LANES bool submit(const Memory& memory, const SendQueue& queue, std::uint32_t slots, const WaitLimit& limit,
                      Write write) {
  std::uint64_t index;
  if (!reserve(memory, queue, slots, limit, &index)) return false;
  write(index);
  return publishSlots(memory, queue, index, slots, limit) && ringUpTo(memory, queue, index + slots, limit);
}

}  // namespace moe::mlx5
