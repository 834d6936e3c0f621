// How many posters post WQEs at once: they reserve slots, write them, publish in order, and ring. The same code runs on
// the host and on a GPU, over a Memory (queue_wait.h).
//
// A wait that fails leaves a gap in the order, at which all later posters fail. The queue is then useless, and its rank
// has failed. An error completion has the same effect.
#pragma once

#include "device/queue/mlx5/send_queue.h"
#include "device/queue/queue_wait.h"

namespace moe::mlx5 {

// Tells the adapter of all that is ready, unless somebody is doing so. It holds a lock, because a record that went back
// would lose WQEs.
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

// Takes the next `slots` slots, at most slotCount, and waits until the adapter is done with their content. It rings
// while it waits, because what is in its way may have been published without a ring.
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

// Writes a WQE whose head names `index`. One thread. Each thread of a GPU may write one WQE of a batch.
template <class Memory, int kSegments>
MOE_LANES void writeWqe(const Memory& memory, const SendQueue& queue, std::uint64_t index, const Wqe<kSegments>& wqe) {
  for (int i = 0; i < kSegments; ++i) memory.storeSegment(segmentAt(queue, index, i), wqe.segment[i]);
}

// Says that the slots are written, after all earlier posters have said so of theirs.
template <class Memory>
MOE_LANES bool publishSlots(const Memory& memory, const SendQueue& queue, std::uint64_t index, std::uint32_t slots,
                            const WaitLimit& limit) {
  std::uint64_t* ready = &queue.counters->ready;
  if (!waitUntil(memory, limit, [&] { return memory.load(ready) == index; })) return false;
  memory.publish(ready, index + slots);
  return true;
}

// Returns when this poster or another one has told the adapter of all slots before `end`.
template <class Memory>
MOE_LANES bool ringUpTo(const Memory& memory, const SendQueue& queue, std::uint64_t end, const WaitLimit& limit) {
  return waitUntil(memory, limit, [&] {
    ringReady(memory, queue);
    return memory.load(&queue.counters->posted) >= end;
  });
}

// Posts a batch of `slots` slots, which write(index of the first) fills by writeWqe, and rings once. The last WQE must
// be signalled, because only completions give slots back.
template <class Memory, class Write>
MOE_LANES bool submit(const Memory& memory, const SendQueue& queue, std::uint32_t slots, const WaitLimit& limit,
                      Write write) {
  std::uint64_t index;
  if (!reserve(memory, queue, slots, limit, &index)) return false;
  write(index);
  return publishSlots(memory, queue, index, slots, limit) && ringUpTo(memory, queue, index + slots, limit);
}

}  // namespace moe::mlx5
