// How the lanes of a GPU's warp post puts as RDMA writes (device/queue/mlx5/put_queue.h). The code is out of line, so
// that a kernel has it once, and spends no registers on it where nothing is put.
#pragma once

#include "device/policy/cuda/queue_memory.h"
#include "device/queue/mlx5/put_queue.h"
#include "device/view/views.h"

namespace moe::cuda_put_queue {

MOE_LANES unsigned laneIndex() {
  return threadIdx.x % 32;
}

// The lanes of `group` have a piece each, or none, for one queue. Their first lane reserves, publishes and rings for
// all. Groups of a warp go on independently: none waits for another.
MOE_LANES bool postBatch(const mlx5::PutQueue& queue, unsigned group, bool has, const Put& mine, std::uint32_t piece,
                         bool rings, const WaitLimit& limit) {
  const CudaQueueMemory memory;
  const unsigned batch = __ballot_sync(group, has), leader = static_cast<unsigned>(__ffs(static_cast<int>(group))) - 1;
  const auto slots = static_cast<std::uint32_t>(__popc(batch));
  std::uint64_t index = 0;
  bool good = true;
  if (laneIndex() == leader) good = mlx5::reserve(memory, queue.send, slots, limit, &index);
  if (!__all_sync(group, good)) return false;
  index = __shfl_sync(group, index, static_cast<int>(leader));
  const auto before = static_cast<std::uint32_t>(__popc(batch & ((1u << laneIndex()) - 1)));
  const std::uint8_t flags = before + 1 == slots ? mlx5::kSignalled : std::uint8_t{0};
  if (has) mlx5::writePiece(memory, queue, index + before, mine, piece, flags);
  __syncwarp(group);
  if (laneIndex() == leader) {
    good = mlx5::publishSlots(memory, queue.send, index, slots, limit);
    if (good && (rings || mlx5::manyWait(memory, queue, index + slots))) {
      good = mlx5::ringUpTo(memory, queue.send, index + slots, limit);
    }
  }
  return __all_sync(group, good) != 0;
}

// The lanes of `users` call it, each with a put. A word goes behind all pieces of its group. False: no room in time.
__device__ __noinline__ inline bool post(const CommView& comm, unsigned users, Put mine) {
  const int connection = comm.far->remote.connectionOf(mine);
  const mlx5::PutQueue& queue = comm.far->remote.queues[connection];
  const unsigned group = __match_any_sync(users, connection);
  const WaitLimit limit{CudaQueueMemory().nanoseconds(), comm.orders};
  const std::uint32_t pieces = mlx5::piecesOf(queue, mine), rounds = __reduce_max_sync(group, pieces);
  const bool hasWord = __any_sync(group, mine.bytes == 0) != 0;
#pragma unroll 1
  for (std::uint32_t round = 0; round < rounds; ++round) {
    const bool last = round + 1 == rounds, has = mine.bytes == 0 ? last : round < pieces;
    if (!postBatch(queue, group, has, mine, round, hasWord && last, limit)) return false;
  }
  return true;
}

}  // namespace moe::cuda_put_queue
