// A completion queue, as its only owner sees it. The owner takes completions out and gives slots of the send queue
// back.
#pragma once

#include "device/queue/mlx5/cqe.h"
#include "device/queue/mlx5/send_queue.h"

namespace moe::mlx5 {

struct CompletionQueue {
  const Cqe* entries;
  std::uint32_t count;     // a power of two
  std::uint32_t* record;   // doorbell record: [0] how many were taken out, [1] asks for an event
  std::uint64_t consumed;  // taken out since the queue was made
};

MOE_LANES constexpr std::uint32_t consumedRecord(std::uint64_t consumed) {
  return bigEndian(static_cast<std::uint32_t>(consumed & 0xffffffu));
}

// Takes one completion out, if there is one.
template <class Memory>
MOE_LANES bool poll(const Memory& memory, CompletionQueue& queue, Completion* completion) {
  const Cqe& entry = queue.entries[queue.consumed & (queue.count - 1)];
  if (!isNew(bigEndian(memory.load(&entry.word[kCqeLast])), queue.consumed, queue.count)) return false;
  *completion = parse(entry);
  memory.storeRecord(queue.record, consumedRecord(++queue.consumed));
  return true;
}

// Gives back the slots of the completed WQE and of all before it, because an adapter completes in order.
template <class Memory>
MOE_LANES void retire(const Memory& memory, const SendQueue& queue, const Completion& completion) {
  const std::uint64_t index = indexOfCounter(memory.load(queue.completed), completion.counter);
  memory.publish(queue.completed, endOfWqe(queue, index));
}

}  // namespace moe::mlx5
