// The markings of device code, and what protocol files may assume about the machine: nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__CUDACC__)
#define MOE_LANES __device__ __forceinline__
#define MOE_HOST_DEVICE __host__ __device__ __forceinline__
#define MOE_ROLLED _Pragma("unroll 1")  // before a loop: not to be unrolled
#else
#define MOE_LANES inline
#define MOE_HOST_DEVICE inline
#define MOE_ROLLED
#endif

namespace moe {

// Which of the warps that run a step, or a part of one, this one is. Warps of a block, those with the same
// `index % blocks`, share a multiprocessor; where there is no such thing every warp is a block of its own.
struct WarpIndex {
  int index;
  int count;
  int blocks;
  int perBlock = 0;  // if not all warps of the blocks are in the team: so many of each are
};

// What a warp does of a step whose work is divided: what goes to other ranks, or what stays here. `all`: both.
enum class Duty { all, away, home };

// A warp among all that run a step, and among those of its duty.
struct Crew {
  WarpIndex all, team;
};

// Sixteen bytes that move as one.
struct alignas(16) Quad {
  std::uint32_t x, y, z, w;
};

MOE_HOST_DEVICE constexpr std::int64_t roundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace moe
