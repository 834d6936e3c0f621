// WQEs that the library never posts: writes with immediate, reads and atomics, and two bits of their heads. The
// software adapter executes them for other programs, and the oracle compares them with libmlx5's.
#pragma once

#include "device/queue/mlx5/wqe.h"

namespace moe::mlx5 {

// Bits of WqeHead::flags.
inline constexpr std::uint8_t kSolicited = 1 << 1;  // the receiver's completion raises an event, if it asked for one
inline constexpr std::uint8_t kFenced = 4 << 5;     // starts after all earlier reads and atomics have their results

MOE_LANES constexpr Quad atomicSegment(std::uint64_t addOrSwap, std::uint64_t compare) {
  return {highWord(addOrSwap), lowWord(addOrSwap), highWord(compare), lowWord(compare)};
}

// Also consumes one of the receiver's receive WQEs and makes a completion there.
MOE_LANES constexpr Wqe<3> rdmaWriteImm(const WqeHead& head, const RemoteAddress& to, const LocalRange& from,
                                        std::uint32_t immediate) {
  return {{controlSegment(Opcode::rdmaWriteImm, head, 3, immediate), remoteSegment(to), dataSegment(from)}};
}

MOE_LANES constexpr Wqe<3> rdmaRead(const WqeHead& head, const RemoteAddress& from, const LocalRange& to) {
  return {{controlSegment(Opcode::rdmaRead, head, 3), remoteSegment(from), dataSegment(to)}};
}

// The previous value lands in `before`, in a byte order that depends on the adapter. Do not use it.
MOE_LANES constexpr Wqe<4> fetchAdd(const WqeHead& head, const RemoteAddress& to, std::uint64_t add,
                                    std::uint64_t before, std::uint32_t beforeLkey) {
  return {{controlSegment(Opcode::fetchAdd, head, 4), remoteSegment(to), atomicSegment(add, 0),
           dataSegment({before, beforeLkey, 8})}};
}

MOE_LANES constexpr Wqe<4> compareSwap(const WqeHead& head, const RemoteAddress& to, std::uint64_t compare,
                                       std::uint64_t swap, std::uint64_t before, std::uint32_t beforeLkey) {
  return {{controlSegment(Opcode::compareSwap, head, 4), remoteSegment(to), atomicSegment(swap, compare),
           dataSegment({before, beforeLkey, 8})}};
}

}  // namespace moe::mlx5
