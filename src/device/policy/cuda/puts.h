// A GPU policy with `put`, for kernels of several domains. Kernels for one domain do not have it, because code that a
// kernel does not contain costs neither registers nor instructions (docs/decisions/0021-what-a-policy-cannot-do.md).
//
// A put into a ring: one lane reserves entries for all lanes; each lane fills its own entry and publishes it with
// st.release.sys. A put into mlx5 queues is an RDMA write (queue/mlx5/put_queue.h). That code is out of line, so that a
// kernel contains it once, and spends no registers on it where nothing is put.
#pragma once

#include "device/policy/cuda/flags.h"
#include "device/policy/cuda/warp.h"
#include "device/queue/mlx5/put_queue.h"

namespace moe {

// Puts into mlx5 queues.
namespace cuda_put_queue {

MOE_LANES unsigned laneIndex() {
  return threadIdx.x % 32;
}

// Posts a batch to one queue, in which each lane of `group` has a piece or none. The first lane reserves, publishes and
// rings for all. The groups of a warp proceed independently: none waits for another.
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

// Called by the lanes of `users`, each with a put. A word goes after all pieces of its group. False: no room in time.
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

}  // namespace cuda_put_queue

template <class Base>
class CudaPuts : public Base {
 public:
  using Base::Base;
  static constexpr bool kPuts = true;

  // Puts are posted ring by ring; each put's rank determines its ring. One lane takes the slots for all lanes, because
  // lanes that each waited for their own slots would wait for each other.
  template <class PutOf>
  MOE_LANES void put(const CommView& comm, int n, PutOf putOf) const {
    if (!this->gather()) return;
    const RemoteView& remote = comm.far->remote;
    for (int begin = 0; begin < n; begin += Base::kLanes) {
      const bool puts = begin + Base::lane() < n;
      const Put mine = putOf(puts ? begin + Base::lane() : begin);
      if (remote.queues != nullptr) {
        if (!putOnQueues(comm, puts, mine)) return;
        continue;
      }
      for (int ring = 0; ring < remote.rings; ++ring) {
        const std::uint32_t users = __ballot_sync(Base::kAll, puts && remote.ringOf(mine) == ring);
        if (users != 0 && !putOnRing(comm, remote.ring[ring], users, mine)) return;
      }
    }
    __syncwarp();
  }

 private:
  // Posts the put of each lane that has one. False: a timeout, which is reported, or an abort.
  MOE_LANES bool putOnQueues(const CommView& comm, bool puts, const Put& mine) const {
    const unsigned users = __ballot_sync(Base::kAll, puts);
    bool good = true;
    if (puts) good = cuda_put_queue::post(comm, users, mine);
    if (!good) this->laneFail(comm, lateRank(Phase::puts, mine.to, 0, 0));
    return __all_sync(Base::kAll, good) != 0;
  }

  // Posts the puts of some lanes. False: a timeout, which is reported, or an abort.
  MOE_LANES bool putOnRing(const CommView& comm, const PutRing& ring, std::uint32_t users, const Put& mine) const {
    const CudaQueueMemory memory;
    const int leader = __ffs(static_cast<int>(users)) - 1;
    std::uint64_t index = 0;
    bool good = true;
    if (Base::lane() == leader) {
      const WaitLimit limit{memory.nanoseconds(), comm.orders};
      good = reservePuts(memory, ring, static_cast<std::uint32_t>(__popc(users)), limit, &index);
      if (!good) this->laneFail(comm, lateRank(Phase::puts, mine.to, 0, 0));
    }
    if (!__all_sync(Base::kAll, good)) return false;
    index = __shfl_sync(Base::kAll, index, leader);
    const std::uint32_t before = users & ((1u << Base::lane()) - 1);
    if ((users >> Base::lane() & 1u) != 0) fillPut(memory, ring, index + static_cast<unsigned>(__popc(before)), mine);
    return true;
  }
};

}  // namespace moe
