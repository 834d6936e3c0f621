// Puts as RDMA writes, which steps themselves post to a connection with the receiving rank. A put is one WQE, or
// several if it is longer than the adapter's messages. A word is a WQE that carries it inline. The WQEs of a connection
// are executed in order, so a word lands after the bytes that were put before it.
//
// The doorbell is rung when a word is posted, or when many slots wait. Bytes are useless before their word, and a
// doorbell is expensive.
//
// CPU threads post with postPuts; the lanes of a GPU's warp post with device/policy/cuda/puts.h.
#pragma once

#include "device/queue/mlx5/send_queue.h"
#include "device/queue/mlx5/wqe.h"
#include "device/queue/put.h"

namespace moe::mlx5 {

// A connection with one rank, as seen by posters. The host writes it at init; steps read it.
struct PutQueue {
  SendQueue send;
  std::uint64_t source;  // address of this rank's window
  std::uint64_t target;  // address of the other rank's window
  std::uint32_t sourceKey;
  std::uint32_t dataKey, wordKey;  // for the other rank's window
  std::uint32_t messageBytes;      // most bytes of a WQE, a multiple of 4
};

// The most slots that are reserved at once: one for each lane of a GPU's warp. A queue has at least as many, except
// in tests.
inline constexpr std::uint32_t kPutBatch = 32;

// When this many slots wait, the doorbell is rung without a word.
inline constexpr std::uint32_t kPutsUnrung = 128;

// Whether to ring the doorbell for a batch that ends at `end` and has no word.
template <class Memory>
MOE_LANES bool manyWait(const Memory& memory, const PutQueue& queue, std::uint64_t end) {
  return end - memory.load(&queue.send.counters->posted) >= kPutsUnrung;
}

// How many WQEs a put needs; each has one slot.
MOE_LANES constexpr std::uint32_t piecesOf(const PutQueue& queue, const Put& put) {
  return put.bytes == 0 ? 1 : (put.bytes - 1) / queue.messageBytes + 1;
}

// Writes one piece of a put. The last WQE of a batch must be signalled.
template <class Memory>
MOE_LANES void writePiece(const Memory& memory, const PutQueue& queue, std::uint64_t index, const Put& put,
                          std::uint32_t piece, std::uint8_t flags) {
  const WqeHead head = headAt(queue.send, index, flags);
  if (put.bytes == 0) {
    const RemoteAddress to = {queue.target + put.target, queue.wordKey};
    return writeWqe(memory, queue.send, index, inlineWrite(head, to, inlineFlag(put.source)));
  }
  const std::uint64_t begin = std::uint64_t{piece} * queue.messageBytes, left = put.bytes - begin;
  const auto bytes = static_cast<std::uint32_t>(left < queue.messageBytes ? left : queue.messageBytes);
  const RemoteAddress to = {queue.target + put.target + begin, queue.dataKey};
  writeWqe(memory, queue.send, index, rdmaWrite(head, to, {queue.source + put.source + begin, queue.sourceKey, bytes}));
}

// Posts puts begin .. end - 1, all to the rank of `queue`, in batches. For one thread.
template <class Memory, class PutOf>
MOE_LANES bool postRun(const Memory& memory, const PutQueue& queue, int begin, int end, PutOf putOf,
                       const WaitLimit& limit) {
  const std::uint32_t batch = kPutBatch < queue.send.slotCount ? kPutBatch : queue.send.slotCount;
  std::uint32_t piece = 0;  // the next piece of put `begin`
  std::uint64_t written = 0;
  bool hasWord = false;
  while (begin < end) {
    std::uint64_t pieces = 0;
    for (int i = begin; i < end && pieces < batch + piece; ++i) pieces += piecesOf(queue, putOf(i));
    pieces -= piece;
    const auto slots = static_cast<std::uint32_t>(pieces < batch ? pieces : batch);
    std::uint64_t index;
    if (!reserve(memory, queue.send, slots, limit, &index)) return false;
    written = index + slots;
    for (std::uint64_t slot = index; slot < written; ++slot) {
      const Put put = putOf(begin);
      hasWord = hasWord || put.bytes == 0;
      writePiece(memory, queue, slot, put, piece, slot + 1 == written ? kSignalled : std::uint8_t{0});
      if (++piece == piecesOf(queue, put)) {
        piece = 0;
        ++begin;
      }
    }
    if (!publishSlots(memory, queue.send, index, slots, limit)) return false;
    if (!manyWait(memory, queue, written)) continue;
    if (!ringUpTo(memory, queue.send, written, limit)) return false;
  }
  return !hasWord || ringUpTo(memory, queue.send, written, limit);
}

// Posts puts 0 .. n - 1 in this order, each to queues[indexOf(put)]. For one thread. False: a queue to rank `*late` had
// no room in time.
template <class Memory, class IndexOf, class PutOf>
MOE_LANES bool postPuts(const Memory& memory, const PutQueue* queues, IndexOf indexOf, int n, PutOf putOf,
                        const WaitLimit& limit, int* late) {
  int end;
  for (int begin = 0; begin < n; begin = end) {
    const Put first = putOf(begin);
    const int index = indexOf(first);
    for (end = begin + 1; end < n && indexOf(putOf(end)) == index;) ++end;
    *late = first.to;
    if (!postRun(memory, queues[index], begin, end, putOf, limit)) return false;
  }
  return true;
}

}  // namespace moe::mlx5
