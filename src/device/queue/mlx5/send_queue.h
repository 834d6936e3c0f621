// A send queue, as its posters on the host or on a GPU see it: plain addresses and numbers. The driver makes the queue;
// this handle neither owns nor allocates. submit.h posts, completion_queue.h finds out what is done.
#pragma once

#include "device/queue/mlx5/wqe.h"

namespace moe::mlx5 {

// All of these count slots since the queue was made, and only grow. Only submit.h writes them, in their order.
struct SendCounters {
  std::uint64_t reserved;  // given to posters, who may still be writing
  std::uint64_t ready;     // all slots before it are written
  std::uint64_t posted;    // the adapter has been told of all before it
  std::uint32_t bell;      // 1 while somebody tells the adapter
  std::uint32_t unused;
};

struct SendQueue {
  Quad* segments;           // of all slots
  std::uint32_t slotCount;  // a power of two, at most 32768
  std::uint32_t queuePair;
  std::uint32_t* record;     // doorbell record: [0] is the receive queue's half, [1] the send queue's
  std::uint64_t* doorbell;   // register of the adapter (in its UAR page)
  SendCounters* counters;    // shared by the posters
  std::uint64_t* completed;  // slots that the adapter is done with; written by the owner of the completion queue
};

// ---- Where a slot lies

MOE_LANES constexpr Quad* segmentAt(const SendQueue& queue, std::uint64_t index, int segment) {
  const std::uint64_t slot = (index + static_cast<unsigned>(segment / kSlotSegments)) & (queue.slotCount - 1);
  return queue.segments + slot * kSlotSegments + segment % kSlotSegments;
}

MOE_LANES constexpr WqeHead headAt(const SendQueue& queue, std::uint64_t index, std::uint8_t flags) {
  return {queue.queuePair, static_cast<std::uint16_t>(index), flags};
}

// ---- What the adapter is told: that all slots before `end` are written. The record counts, and the adapter may read
// it at any time. The doorbell only says which queue pair's record to read.

inline constexpr int kSendRecord = 1;

MOE_LANES constexpr std::uint32_t sendRecord(std::uint64_t end) {
  return bigEndian(static_cast<std::uint32_t>(end & 0xffffu));
}

// libmlx5 rings with the first eight bytes of the last WQE. Posters on GPUs ring with this value instead, because that
// WQE may be another poster's. The place for the index holds the next one; opcode and length are zero.
MOE_LANES constexpr std::uint64_t doorbellValue(std::uint32_t queuePair, std::uint64_t end) {
  return bigEndian((end & 0xffffu) << 40 | std::uint64_t{queuePair} << 8);
}

// ---- Which slots are done

// Completions name the low 16 bits of the index. An uncompleted WQE is never further from `completed` than the queue is
// long, so these bits identify it.
MOE_LANES constexpr std::uint64_t indexOfCounter(std::uint64_t completed, std::uint16_t counter) {
  return completed + static_cast<std::uint16_t>(counter - static_cast<std::uint16_t>(completed));
}

// The first slot behind the WQE at `index`, by the length in its control segment.
MOE_LANES constexpr std::uint64_t endOfWqe(const SendQueue& queue, std::uint64_t index) {
  const auto segments = static_cast<int>(bigEndian(segmentAt(queue, index, 0)->y) & 63u);
  return index + static_cast<unsigned>(slotsOfSegments(segments));
}

}  // namespace moe::mlx5
