// Attributes of device code and its basic types. Protocol files assume nothing else about the machine.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define MOE_LANES __device__ __forceinline__
#define MOE_SELDOM __device__ __noinline__  // separate code, so that it costs nothing in steps that do not call it
#define MOE_HOST_DEVICE __host__ __device__ __forceinline__
#define MOE_ROLLED _Pragma("unroll 1")  // before a loop: do not unroll it
#define MOE_UNROLLED _Pragma("unroll")  // before a loop: unroll it, so that the array that it fills stays in registers
#else
#define MOE_LANES inline
#define MOE_SELDOM inline
#define MOE_HOST_DEVICE inline
#define MOE_ROLLED
#define MOE_UNROLLED
#endif

namespace moe {

// The position of this warp among the warps that run a step, or a part of one. Warps with the same `index % blocks`
// form a block and share a multiprocessor. On machines without blocks every warp is its own block.
struct WarpIndex {
  int index;
  int count;
  int blocks;
  int perBlock = 0;  // not 0: only this many warps of each block are in the team
  int inBlock = 0;   // position in the block, counted over all warps of the step: index / blocks

  // The number of this warp's block, counted over all warps of the step.
  MOE_HOST_DEVICE int block() const { return index - inBlock * blocks; }
};

// The duty of a warp in a divided step: `move` moves rows, `describe` fills the arrays about them, `all` does both.
enum class Duty { all, move, describe };

// A warp's position among all warps that run a step, and among those with its duty.
struct Crew {
  WarpIndex all, team;
};

// Sixteen bytes that are moved as one access.
struct alignas(16) Quad {
  std::uint32_t x, y, z, w;
};

// Eight bytes that are moved as one access.
struct alignas(8) HalfQuad {
  std::uint32_t x, y;
};

// Divides by a constant with a multiplication. Valid for dividends from 0 to 2^31 - 1. A zeroed Divisor divides by 1.
struct Divisor {
  std::uint32_t multiplier, shift;

  MOE_HOST_DEVICE constexpr int of(int dividend) const {
    const auto n = static_cast<std::uint32_t>(dividend);
    return static_cast<int>((static_cast<std::uint32_t>(std::uint64_t{n} * multiplier >> 32) + n) >> shift);
  }
};
// 2^shift is the divisor rounded up to a power of two. (2^32 + multiplier) / 2^(32 + shift) exceeds 1 / divisor by so
// little that the quotient is exact for every dividend. A divisor below 1 counts as 1.
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
