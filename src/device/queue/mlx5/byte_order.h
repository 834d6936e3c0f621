// Adapters read and write their queues in big-endian order.
#pragma once

#include "device/lanes.h"

namespace moe::mlx5 {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GPUs are little-endian, and so must the host be");

#if defined(__CUDACC__)
// Reverses four bytes with one instruction of the GPU, where nvcc would make seven shifts.
MOE_LANES std::uint32_t swappedByGpu(std::uint32_t value) {
  return __byte_perm(value, 0, 0x0123);
}
#endif

// Converts from the machine's order to the adapter's, or back.
MOE_LANES constexpr std::uint32_t bigEndian(std::uint32_t value) {
#if defined(__CUDACC__)
  if (!__builtin_is_constant_evaluated()) return swappedByGpu(value);
#endif
  return value << 24 | (value & 0xff00u) << 8 | (value >> 8 & 0xff00u) | value >> 24;
}
MOE_LANES constexpr std::uint64_t bigEndian(std::uint64_t value) {
  return std::uint64_t{bigEndian(static_cast<std::uint32_t>(value))} << 32 |
         bigEndian(static_cast<std::uint32_t>(value >> 32));
}

// The two 32-bit words, in the order of their addresses, of a 64-bit field.
MOE_LANES constexpr std::uint32_t highWord(std::uint64_t value) {
  return bigEndian(static_cast<std::uint32_t>(value >> 32));
}
MOE_LANES constexpr std::uint32_t lowWord(std::uint64_t value) {
  return bigEndian(static_cast<std::uint32_t>(value));
}

}  // namespace moe::mlx5
