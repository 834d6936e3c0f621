// The GPU policy for sm_90 and newer: rows move with the bulk-copy engine, global -> shared -> global, several stages
// in flight per warp and one issuing lane. A copy is complete, and ordered before a flag, at publish and arrive. What
// else a warp does is CudaWarp's. Stages and their sizes: docs/performance.md (measured with ceiling probes of this
// shape).
#pragma once

#include "device/cuda_warp.h"

namespace moe {

// The bulk-copy instructions.
namespace cuda_bulk {

MOE_LANES std::uint32_t sharedAddress(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
MOE_LANES void initBarrier(std::uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(sharedAddress(barrier)) : "memory");
}
MOE_LANES void fenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
MOE_LANES void expectBytes(std::uint64_t* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(sharedAddress(barrier)), "r"(bytes)
               : "memory");
}
MOE_LANES bool tryWait(std::uint64_t* barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(sharedAddress(barrier)), "r"(parity)
               : "memory");
  return done != 0;
}
MOE_LANES void load(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   sharedAddress(shared)),
               "l"(global), "r"(bytes), "r"(sharedAddress(barrier))
               : "memory");
}
MOE_LANES void store(void* global, const void* shared, std::uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(sharedAddress(shared)),
               "r"(bytes)
               : "memory");
}
MOE_LANES void commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int kPending>
MOE_LANES void waitRead() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
MOE_LANES void waitComplete() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
MOE_LANES void fenceProxy() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

}  // namespace cuda_bulk

class CudaBulkWarp : public CudaWarp {
 public:
  static constexpr int kStages = kBulkStages;

  // `stages` is kStages * stageBytes of shared memory of this warp's own, `full` its kStages barriers.
  MOE_LANES CudaBulkWarp(std::uint8_t* stages, std::uint64_t* full, std::uint32_t stageBytes)
      : stages_(stages), full_(full), stageBytes_(stageBytes) {
    if (lane() == 0) {
      for (int i = 0; i < kStages; ++i) cuda_bulk::initBarrier(full_ + i);
      cuda_bulk::fenceBarrierInit();
    }
    __syncwarp();
  }

  template <class JobOf, class SinkOf>
  MOE_LANES void streamRows(int n, JobOf jobOf, SinkOf sinkOf) const {
    __syncwarp();
    if (lane() == 0) laneStream(n, jobOf, sinkOf);
    __syncwarp();
  }

  MOE_LANES void publish(Flag* flag, Flag word) const {
    finishCopies();
    CudaWarp::publish(flag, word);
  }
  template <class FlagOf>
  MOE_LANES void publishAll(int n, FlagOf flagOf, Flag word) const {
    finishCopies();
    CudaWarp::publishAll(n, flagOf, word);
  }
  MOE_LANES bool arrive(const CommView& comm, Meeting meeting, int count) const {
    finishCopies();
    return CudaWarp::arrive(comm, meeting, count);
  }
  // What was acquired is next read by the bulk-copy engine, through another proxy.
  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Phase phase) const {
    const bool good = CudaWarp::waitAll(comm, flags, n, epoch, phase);
    cuda_bulk::fenceProxy();
    return good;
  }

 private:
  // One pass over the pieces of all jobs; the loading cursor runs ahead of the storing one.
  struct Cursor {
    int item = -1;
    std::uint32_t offset = 0;
    CopyJob job{nullptr, 0, 0};

    template <class JobOf>
    MOE_LANES bool next(int n, std::uint32_t stageBytes, JobOf& jobOf) {
      offset += stageBytes;
      while (item < 0 || offset >= job.bytes || job.sinks <= 0) {
        if (++item >= n) return false;
        job = jobOf(item);
        offset = 0;
      }
      return true;
    }
    MOE_LANES std::uint32_t bytes(std::uint32_t stageBytes) const {
      return job.bytes - offset < stageBytes ? job.bytes - offset : stageBytes;
    }
  };

  MOE_LANES void finishCopies() const {
    if (lane() == 0) cuda_bulk::waitComplete();
    __syncwarp();
  }

  MOE_LANES std::uint8_t* stage(std::uint32_t use) const { return stages_ + use % kStages * stageBytes_; }

  MOE_LANES void startLoad(const Cursor& from, std::uint32_t use) const {
    std::uint64_t* barrier = full_ + use % kStages;
    const std::uint32_t bytes = from.bytes(stageBytes_);
    cuda_bulk::expectBytes(barrier, bytes);
    cuda_bulk::load(stage(use), from.job.source + from.offset, bytes, barrier);
  }

  template <class JobOf, class SinkOf>
  MOE_LANES void laneStream(int n, JobOf& jobOf, SinkOf& sinkOf) const {
    Cursor loading, storing;
    std::uint32_t loads = used_, stores = used_;
    cuda_bulk::waitRead<0>();  // an earlier call may still read the stages
    bool more = loading.next(n, stageBytes_, jobOf);
    for (; more && loads - stores < kStages - 1; more = loading.next(n, stageBytes_, jobOf))
      startLoad(loading, loads++);
    for (; stores != loads; ++stores) {
      storing.next(n, stageBytes_, jobOf);
      while (!cuda_bulk::tryWait(full_ + stores % kStages, stores / kStages & 1)) {
      }
      for (int sink = 0; sink < storing.job.sinks; ++sink) {
        cuda_bulk::store(sinkOf(storing.item, sink) + storing.offset, stage(stores), storing.bytes(stageBytes_));
      }
      cuda_bulk::commit();
      if (!more) continue;
      cuda_bulk::waitRead<1>();  // all but the latest store have left their stages
      startLoad(loading, loads++);
      more = loading.next(n, stageBytes_, jobOf);
    }
    used_ = stores;
  }

  std::uint8_t* stages_;
  std::uint64_t* full_;
  std::uint32_t stageBytes_;
  mutable std::uint32_t used_ = 0;  // stages used since the kernel began: which stage and which barrier phase is next
};

}  // namespace moe
