// The kernels of the ceilings and their parameters: plain pointers and numbers. They are written for speed alone. Only
// the kernels that exchange flags wait for other ranks, and those waits have a limit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "perf/ceiling/ceiling_plan.h"

namespace moe::perf {

inline constexpr int kCeilingRanksMax = 32;                // one lane per rank
inline constexpr std::uint32_t kBulkStageBytes = 7168;     // the largest bulk copy
inline constexpr int kBulkWarpsMax = 8;                    // per block
inline constexpr int kFlagBytes = 128;                     // flags do not share cache lines
inline constexpr std::uint64_t kFlagWaitNs = 20000000000;  // a rank that has not arrived by then has failed

struct GridShape {
  int blocks;  // one per multiprocessor
  int warps;   // per block
};

// Copies row i of `source` to the addresses sinks[i][0..]. A 0 ends the list.
struct PushJobs {
  const std::uint8_t* source;
  const std::uint64_t* sinks;  // [rows][width]
  std::int32_t width;
  std::int32_t rows;
  std::uint32_t rowBytes;
  Parts parts;
};
cudaError_t launchPush(const PushJobs& jobs, GridShape shape, cudaStream_t stream);

// Takes the rows at sources[token][0..] up to a 0. Copies them to the token's `destinationsPerToken` rows of `to`, or
// their sum to the token's one row.
struct PullJobs {
  const std::uint64_t* sources;  // [tokens][width]
  std::int32_t width;
  std::int32_t tokens;
  std::int32_t destinationsPerToken;
  std::uint32_t rowBytes;
  Parts parts;
  std::uint8_t* to;
};
cudaError_t launchPull(const PullJobs& jobs, GridShape shape, cudaStream_t stream);
cudaError_t launchPullSums(const PullJobs& jobs, Format format, GridShape shape, cudaStream_t stream);

// Copies through shared memory, with 3 or 4 stages per warp. Needs compute capability 9.0.
struct BulkJobs {
  const BulkCopy* copies;
  std::int64_t count;
};
std::size_t bulkSharedBytes(int stages, int warps);
cudaError_t launchBulk(const BulkJobs& jobs, int stages, GridShape shape, cudaStream_t stream);

// This rank's own state of the kernels that exchange flags. With it, they can be replayed from graphs.
struct FlagState {
  std::uint64_t barriers;  // passed so far
  std::uint64_t rounds;    // round trips done so far
  std::uint64_t late;      // not 0: a flag did not come in time, and all later kernels return at once
};

// The flags. Every rank has one flag for each rank's barriers, written by that rank, and one for round trips, written
// by the partner. A flag holds the number of the barrier or round, which only grows.
struct FlagJobs {
  FlagState* state;
  std::int32_t rank, nranks;
  std::uint64_t* flags[kCeilingRanksMax];  // [nranks]
};
inline constexpr std::size_t kFlagAreaBytes = (kCeilingRanksMax + 1) * kFlagBytes;
cudaError_t launchBarrier(const FlagJobs& jobs, cudaStream_t stream);
// Ranks 0 and 1 only.
cudaError_t launchRoundTrips(const FlagJobs& jobs, int rounds, cudaStream_t stream);

// Call it before the first launch, with nothing in flight. Loading a kernel at its first launch may wait for the GPU.
cudaError_t loadCeilingKernels(bool bulk);

}  // namespace moe::perf
