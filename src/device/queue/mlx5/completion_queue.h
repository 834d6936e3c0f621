// Completion queues of mlx5 adapters: the entries (CQEs, of 64 bytes), how to tell new entries from old ones, their
// content, and the reasons why an operation failed. A queue has one owner, which takes completions out and gives slots
// of the send queue back.
#pragma once

#include "device/queue/mlx5/byte_order.h"
#include "device/queue/mlx5/send_queue.h"

namespace moe::mlx5 {

// ---- The reason why an operation failed, from an error completion

enum class Syndrome : std::uint8_t {
  none = 0x00,
  localLength = 0x01,
  localOperation = 0x02,
  localProtection = 0x04,
  flushed = 0x05,
  windowBind = 0x06,
  badResponse = 0x10,
  localAccess = 0x11,
  remoteInvalidRequest = 0x12,
  remoteAccess = 0x13,
  remoteOperation = 0x14,
  retriesExceeded = 0x15,
  receiverNotReady = 0x16,
  remoteAborted = 0x22,
};

// For sentences like "the write failed: <text>".
constexpr const char* syndromeText(Syndrome syndrome) {
  switch (syndrome) {
    case Syndrome::none:
      return "no error";
    case Syndrome::localLength:
      return "the data is longer than the buffer or than the port can send";
    case Syndrome::localOperation:
      return "the work-queue element is malformed";
    case Syndrome::localProtection:
      return "the local key does not cover the local memory";
    case Syndrome::flushed:
      return "not tried, as an earlier operation of the queue pair has failed";
    case Syndrome::windowBind:
      return "a memory window could not be bound";
    case Syndrome::badResponse:
      return "the peer's adapter gave an unexpected answer";
    case Syndrome::localAccess:
      return "the local memory may not be written";
    case Syndrome::remoteInvalidRequest:
      return "the peer's adapter refused the request as invalid";
    case Syndrome::remoteAccess:
      return "the remote key does not cover the remote memory, or not for this operation";
    case Syndrome::remoteOperation:
      return "the peer's adapter could not carry it out";
    case Syndrome::retriesExceeded:
      return "the peer's adapter does not answer";
    case Syndrome::receiverNotReady:
      return "the peer has no receive buffer ready";
    case Syndrome::remoteAborted:
      return "the peer aborted it";
  }
  return "a syndrome that mlx5dv.h does not name";
}

// ---- Entries

struct alignas(64) Cqe {
  std::uint32_t word[16];  // big-endian
};

enum class CqeOpcode : std::uint8_t {
  requester = 0,         // an operation that this side posted is done
  writeImmReceived = 1,  // a peer's RDMA write with immediate has arrived
  requesterError = 13,
  responderError = 14,
  invalid = 15,  // never written by the adapter
};

struct Completion {
  CqeOpcode opcode;
  std::uint8_t wqeOpcode;       // requester: opcode of the WQE
  std::uint16_t counter;        // requester: index of the WQE's first slot; receiver: of the receive WQE
  std::uint32_t queuePair;      // 24 bits
  std::uint32_t userIndex;      // the driver's name of the queue pair
  std::uint32_t bytes;          // received, or read
  std::uint32_t immediate;      // in the sender's form
  Syndrome syndrome;            // none, if there is no error
  std::uint8_t vendorSyndrome;  // for the vendor's support staff

  MOE_LANES constexpr bool failed() const {
    return opcode == CqeOpcode::requesterError || opcode == CqeOpcode::responderError;
  }
};

// Word numbers in a Cqe.
inline constexpr int kCqeUserIndex = 8, kCqeImmediate = 9, kCqeBytes = 11, kCqeSyndrome = 13, kCqeQueuePair = 14,
                     kCqeLast = 15;

// Reads the last word of an entry, in the machine's order: counter, signature, opcode and owner. The adapter writes
// this word last.
MOE_LANES constexpr CqeOpcode cqeOpcode(std::uint32_t last) {
  return static_cast<CqeOpcode>(last >> 4 & 15);
}

// True if this is entry number `consumed`, counted from the beginning, of a queue of `count` entries. The adapter flips
// the owner bit in every round of the queue, so that an entry of the previous round does not look new.
MOE_LANES constexpr bool isNew(std::uint32_t last, std::uint64_t consumed, std::uint32_t count) {
  const bool odd = (consumed & count) != 0;
  return cqeOpcode(last) != CqeOpcode::invalid && ((last & 1) != 0) == odd;
}

MOE_LANES constexpr Completion parse(const Cqe& cqe) {
  const std::uint32_t last = bigEndian(cqe.word[kCqeLast]), queuePair = bigEndian(cqe.word[kCqeQueuePair]);
  Completion completion = {.opcode = cqeOpcode(last),
                           .wqeOpcode = static_cast<std::uint8_t>(queuePair >> 24),
                           .counter = static_cast<std::uint16_t>(last >> 16),
                           .queuePair = queuePair & 0xffffffu,
                           .userIndex = bigEndian(cqe.word[kCqeUserIndex]) & 0xffffffu,
                           .bytes = bigEndian(cqe.word[kCqeBytes]),
                           .immediate = cqe.word[kCqeImmediate],
                           .syndrome = Syndrome::none,
                           .vendorSyndrome = 0};
  if (completion.failed()) {
    const std::uint32_t syndromes = bigEndian(cqe.word[kCqeSyndrome]);
    completion.syndrome = static_cast<Syndrome>(syndromes & 0xffu);
    completion.vendorSyndrome = static_cast<std::uint8_t>(syndromes >> 8);
  }
  return completion;
}

// ---- The queue, as seen by its only owner

struct CompletionQueue {
  const Cqe* entries;
  std::uint32_t count;     // a power of two
  std::uint32_t* record;   // doorbell record: [0] is the number taken out, [1] requests an event
  std::uint64_t consumed;  // number taken out since the queue was made
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
