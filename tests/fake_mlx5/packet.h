// The packets between software adapters of different processes: datagrams with a head and at most one page of data. A
// message is the work of one WQE. It has a number of its queue pair (PSN) and travels as one or more packets.
#pragma once

#include <array>
#include <cstdint>

#include "device/queue/mlx5/completion_queue.h"

namespace moe::test {

using Gid = std::array<std::uint8_t, 16>;

inline constexpr std::uint32_t kPacketDataBytes = 16384;

enum class PacketKind : std::uint32_t { request, readData, atomicResult, acknowledge, refuse };

// Why a request was refused. The first two are temporary, and the peer's adapter tries again.
enum class Refusal : std::uint32_t { outOfOrder, notReady, fatal };

struct PacketHead {
  PacketKind kind;
  Refusal refusal;
  mlx5::Syndrome syndrome;  // if the refusal is fatal
  std::uint32_t to, from;   // queue pairs
  Gid toGid;
  std::uint32_t psn;     // acknowledge: the last message done; refuse: the message that is not done
  std::uint32_t opcode;  // opcode of the WQE
  std::uint32_t rkey, immediate;
  std::uint32_t totalBytes, offset, bytes;  // size of the message; this packet's place in it; its size
  std::uint32_t readsMax;                   // how many reads and atomics the requester has under way at most
  std::uint32_t retryNs;                    // not ready: how long to wait
  std::uint64_t address, operand[2];        // atomicResult: operand[0] is the previous value
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
// The distance from `other` to `psn`; negative if `psn` is earlier.
inline std::int32_t psnDistance(std::uint32_t psn, std::uint32_t other) {
  return static_cast<std::int32_t>((psn - other) << 8) >> 8;
}

}  // namespace moe::test
