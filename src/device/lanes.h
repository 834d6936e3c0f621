// The markings of device code, and what protocol files may assume about the machine: nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define MOE_LANES __device__ __forceinline__
#define MOE_SELDOM __device__ __noinline__  // code of its own, which costs a step nothing that does not call it
#define MOE_HOST_DEVICE __host__ __device__ __forceinline__
#define MOE_ROLLED _Pragma("unroll 1")  // before a loop: not to be unrolled
#define MOE_UNROLLED _Pragma("unroll")  // to be unrolled, so that an array that it fills stays in registers
#else
#define MOE_LANES inline
#define MOE_SELDOM inline
#define MOE_HOST_DEVICE inline
#define MOE_ROLLED
#define MOE_UNROLLED
#endif

namespace moe {

// Which of the warps that run a step, or a part of one, this one is. Warps of a block, those with the same
// `index % blocks`, share a multiprocessor; where there is no such thing every warp is a block of its own.
struct WarpIndex {
  int index;
  int count;
  int blocks;
  int perBlock = 0;  // if not all warps of the blocks are in the team: so many of each are
  int inBlock = 0;   // of all warps of a step: index / blocks

  // Of all warps of a step: which block's.
  MOE_HOST_DEVICE int block() const { return index - inBlock * blocks; }
};

// What a warp does of a step whose work is divided: rows are moved, and the caller is told what they are. `all`: both.
enum class Duty { all, move, describe };

// A warp among all that run a step, and among those of its duty.
struct Crew {
  WarpIndex all, team;
};

// Sixteen bytes that move as one.
struct alignas(16) Quad {
  std::uint32_t x, y, z, w;
};

// Eight bytes that do.
struct alignas(8) HalfQuad {
  std::uint32_t x, y;
};

// Division by a number that stays the same: a multiplication. For dividends from 0 below 2^31. Zeroed: by 1.
struct Divisor {
  std::uint32_t multiplier, shift;

  MOE_HOST_DEVICE constexpr int of(int dividend) const {
    const auto n = static_cast<std::uint32_t>(dividend);
    return static_cast<int>((static_cast<std::uint32_t>(std::uint64_t{n} * multiplier >> 32) + n) >> shift);
  }
};
// With 2^shift the next power of two, (2^32 + multiplier) / 2^(32 + shift) is above 1 / divisor by so little that no
// dividend shows it. A divisor below 1 counts as 1.
constexpr Divisor divisorOf(int divisor) {
  std::uint32_t shift = 0;
  while (divisor > 1 && (std::int64_t{1} << shift) < divisor) ++shift;
  if (divisor < 1) return {0, 0};
  const std::uint64_t excess = (std::uint64_t{1} << shift) - static_cast<std::uint64_t>(divisor);
  return {static_cast<std::uint32_t>((excess << 32) / static_cast<std::uint64_t>(divisor) + 1), shift};
}

MOE_HOST_DEVICE constexpr std::int64_t roundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace moe
