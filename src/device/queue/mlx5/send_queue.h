// A send queue, as seen by its posters on the host or on a GPU: plain addresses and numbers. The driver makes the
// queue; this handle neither owns nor allocates anything. completion_queue.h finds completed slots.
//
// Many posters post WQEs at once: they reserve slots, write them, publish them in order, and ring the doorbell. The
// same code runs on the host and on a GPU, over a Memory (queue_wait.h). A wait that fails leaves a gap in the order,
// at which all later posters fail. The queue is then useless, and its rank has failed. An error completion has the same
// effect.
#pragma once

#include "device/queue/mlx5/byte_order.h"
#include "device/queue/mlx5/wqe.h"
#include "device/queue/queue_wait.h"

namespace moe::mlx5 {

// These counters count slots since the queue was made, and only grow. Only posters write them, in their order, with the
// functions below.
struct SendCounters {
  std::uint64_t reserved;  // slots given to posters, which may still be writing them
  std::uint64_t ready;     // all slots before this one are written
  std::uint64_t posted;    // the adapter has been told of all slots before this one
  std::uint32_t bell;      // 1 while a poster tells the adapter
  std::uint32_t unused;
};

struct SendQueue {
  Quad* segments;           // of all slots
  std::uint32_t slotCount;  // a power of two, at most 32768
  std::uint32_t queuePair;
  std::uint32_t* record;     // doorbell record: [0] is the receive queue's half, [1] the send queue's
  std::uint64_t* doorbell;   // a register of the adapter (in its UAR page)
  SendCounters* counters;    // shared by the posters
  std::uint64_t* completed;  // slots that the adapter has completed; written by the owner of the completion queue
};

// ---- Where a slot lies

MOE_LANES constexpr Quad* segmentAt(const SendQueue& queue, std::uint64_t index, int segment) {
  const std::uint64_t slot = (index + static_cast<unsigned>(segment / kSlotSegments)) & (queue.slotCount - 1);
  return queue.segments + slot * kSlotSegments + segment % kSlotSegments;
}

MOE_LANES constexpr WqeHead headAt(const SendQueue& queue, std::uint64_t index, std::uint8_t flags) {
  return {queue.queuePair, static_cast<std::uint16_t>(index), flags};
}

// ---- Notifying the adapter that all slots before `end` are written. The record is authoritative, and the adapter may
// read it at any time. The doorbell only names the queue pair whose record to read.

inline constexpr int kSendRecord = 1;

MOE_LANES constexpr std::uint32_t sendRecord(std::uint64_t end) {
  return bigEndian(static_cast<std::uint32_t>(end & 0xffffu));
}

// libmlx5 rings with the first eight bytes of the last WQE. Posters on GPUs ring with this value instead, because that
// WQE may be another poster's. The index field holds the index of the next WQE; opcode and length are zero.
MOE_LANES constexpr std::uint64_t doorbellValue(std::uint32_t queuePair, std::uint64_t end) {
  return bigEndian((end & 0xffffu) << 40 | std::uint64_t{queuePair} << 8);
}

// ---- Which slots are completed

// Completions have the low 16 bits of the index. An uncompleted WQE is never further from `completed` than the queue is
// long, so these bits identify it.
MOE_LANES constexpr std::uint64_t indexOfCounter(std::uint64_t completed, std::uint16_t counter) {
  return completed + static_cast<std::uint16_t>(counter - static_cast<std::uint16_t>(completed));
}

// The first slot after the WQE at `index`, from the length in its control segment.
MOE_LANES constexpr std::uint64_t endOfWqe(const SendQueue& queue, std::uint64_t index) {
  const auto segments = static_cast<int>(bigEndian(segmentAt(queue, index, 0)->y) & 63u);
  return index + static_cast<unsigned>(slotsOfSegments(segments));
}

// ---- Posting

// Tells the adapter of all slots that are ready, unless another poster is doing so. It holds a lock, because a record
// that went backwards would lose WQEs.
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

// Takes the next `slots` slots, at most slotCount, and waits until the adapter has completed their previous content. It
// rings while it waits, because the WQEs in these slots may have been published without a ring.
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

// Writes a WQE whose head has `index`. For one thread. Each thread of a GPU may write one WQE of a batch.
template <class Memory, int kSegments>
MOE_LANES void writeWqe(const Memory& memory, const SendQueue& queue, std::uint64_t index, const Wqe<kSegments>& wqe) {
  for (int i = 0; i < kSegments; ++i) memory.storeSegment(segmentAt(queue, index, i), wqe.segment[i]);
}

// Publishes that the slots are written, after all earlier posters have published theirs.
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

// Posts a batch of `slots` slots, which write(index of the first) fills with writeWqe, and rings once. The last WQE
// must be signalled, because only completions give slots back.
template <class Memory, class Write>
MOE_LANES bool submit(const Memory& memory, const SendQueue& queue, std::uint32_t slots, const WaitLimit& limit,
                      Write write) {
  std::uint64_t index;
  if (!reserve(memory, queue, slots, limit, &index)) return false;
  write(index);
  return publishSlots(memory, queue, index, slots, limit) && ringUpTo(memory, queue, index + slots, limit);
}

}  // namespace moe::mlx5
