// The packets between software adapters of different processes: datagrams of a head and at most a page of data. A
// message (a WQE's work) has a number of its queue pair (PSN) and goes as one or more packets.
#pragma once

#include <array>
#include <cstdint>

#include "device/queue/mlx5/syndrome.h"

namespace moe::test {

using Gid = std::array<std::uint8_t, 16>;

inline constexpr std::uint32_t kPacketDataBytes = 16384;

enum class PacketKind : std::uint32_t { request, readData, atomicResult, acknowledge, refuse };

// Why a request was refused. The peer's adapter goes on after the first two.
enum class Refusal : std::uint32_t { outOfOrder, notReady, fatal };

struct PacketHead {
  PacketKind kind;
  Refusal refusal;
  mlx5::Syndrome syndrome;  // of a fatal refusal
  std::uint32_t to, from;   // queue pairs
  Gid toGid;
  std::uint32_t psn;     // acknowledge: of the last message that is done; refuse: of the one that is not
  std::uint32_t opcode;  // of the WQE
  std::uint32_t rkey, immediate;
  std::uint32_t totalBytes, offset, bytes;  // of the message; where this packet's data belong in it, and how many
  std::uint32_t readsMax;                   // reads and atomics that the requester has under way at most
  std::uint32_t retryNs;                    // not ready: wait so long
  std::uint64_t address, operand[2];        // atomicResult: operand[0] is the value before
};

struct Packet {
  PacketHead head;
  std::uint8_t data[kPacketDataBytes];
};

// PSNs have 24 bits and wrap.
inline constexpr std::uint32_t kPsnMask = 0xffffff;
inline std::uint32_t psnAfter(std::uint32_t psn, std::uint32_t n) {
  return (psn + n) & kPsnMask;
}
// How far `psn` is behind `other`; negative, if before.
inline std::int32_t psnDistance(std::uint32_t psn, std::uint32_t other) {
  return static_cast<std::int32_t>((psn - other) << 8) >> 8;
}

}  // namespace moe::test
