// A GPU policy with `put`, for kernels of several domains. Kernels for one domain go without: code that a kernel does
// not have costs neither registers nor instructions (docs/decisions/0021-what-a-policy-cannot-do.md).
//
// put into a ring: one lane takes entries for all, each lane fills its own and hands it over with st.release.sys. put
// into mlx5 queues: put_queue.h.
#pragma once

#include "device/policy/cuda/put_queue.h"
#include "device/policy/cuda/warp.h"

namespace moe {

template <class Base>
class CudaPuts : public Base {
 public:
  using Base::Base;
  static constexpr bool kPuts = true;

  // Ring by ring, as each put says by its rank. One lane takes the slots for all: lanes that waited each for their own
  // would wait for each other.
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
  // A put of each lane that has one. False after a timeout, which is reported, or an abort.
  MOE_LANES bool putOnQueues(const CommView& comm, bool puts, const Put& mine) const {
    const unsigned users = __ballot_sync(Base::kAll, puts);
    bool good = true;
    if (puts) good = cuda_put_queue::post(comm, users, mine);
    if (!good) this->laneFail(comm, lateRank(Phase::puts, mine.to, 0, 0));
    return __all_sync(Base::kAll, good) != 0;
  }

  // The puts of some lanes. False after a timeout, which is reported, or an abort.
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
