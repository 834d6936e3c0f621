// Completion-queue entries (CQEs) of mlx5 adapters, of 64 bytes: how to tell new ones from old ones, and what they say.
#pragma once

#include "device/queue/mlx5/byte_order.h"
#include "device/queue/mlx5/syndrome.h"

namespace moe::mlx5 {

struct alignas(64) Cqe {
  std::uint32_t word[16];  // big-endian
};

enum class CqeOpcode : std::uint8_t {
  requester = 0,         // what this side posted is done
  writeImmReceived = 1,  // a peer's RDMA write with immediate has arrived
  requesterError = 13,
  responderError = 14,
  invalid = 15,  // never written by the adapter
};

struct Completion {
  CqeOpcode opcode;
  std::uint8_t wqeOpcode;       // of the WQE, for a requester
  std::uint16_t counter;        // requester: index of the WQE's first slot; receiver: of the receive WQE
  std::uint32_t queuePair;      // 24 bits
  std::uint32_t userIndex;      // what the driver named the queue pair
  std::uint32_t bytes;          // received, or read
  std::uint32_t immediate;      // as the sender gave it
  Syndrome syndrome;            // none, if there is no error
  std::uint8_t vendorSyndrome;  // for the vendor's support

  MOE_LANES constexpr bool failed() const {
    return opcode == CqeOpcode::requesterError || opcode == CqeOpcode::responderError;
  }
};

// Words of a Cqe.
inline constexpr int kCqeUserIndex = 8, kCqeImmediate = 9, kCqeBytes = 11, kCqeSyndrome = 13, kCqeQueuePair = 14,
                     kCqeLast = 15;

// Reads the last word, which the adapter writes last, in the machine's order: counter, signature, opcode and owner.
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
  Completion completion = {cqeOpcode(last),
                           static_cast<std::uint8_t>(queuePair >> 24),
                           static_cast<std::uint16_t>(last >> 16),
                           queuePair & 0xffffffu,
                           bigEndian(cqe.word[kCqeUserIndex]) & 0xffffffu,
                           bigEndian(cqe.word[kCqeBytes]),
                           cqe.word[kCqeImmediate],
                           Syndrome::none,
                           0};
  if (completion.failed()) {
    const std::uint32_t syndromes = bigEndian(cqe.word[kCqeSyndrome]);
    completion.syndrome = static_cast<Syndrome>(syndromes & 0xffu);
    completion.vendorSyndrome = static_cast<std::uint8_t>(syndromes >> 8);
  }
  return completion;
}

}  // namespace moe::mlx5
