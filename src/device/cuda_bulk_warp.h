// The GPU policy for sm_90 and newer: rows move with the bulk-copy engine, global -> shared -> global, several stages
// in flight per warp and one issuing lane. A copy is complete, and ordered before a flag, at publish and announce. What
// else a warp does is CudaWarp's. Stages and their sizes: docs/performance.md (measured with ceiling probes of this
// shape).
#pragma once

#include "device/cuda_warp.h"
#include "device/kernel_numbers.h"

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
MOE_LANES void load(std::uint32_t shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(sharedAddress(barrier))
               : "memory");
}
MOE_LANES void load(void* shared, const void* global, std::uint32_t bytes, std::uint64_t* barrier) {
  load(sharedAddress(shared), global, bytes, barrier);
}
MOE_LANES Quad loadQuad(std::uint32_t shared) {
  Quad piece;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w)
               : "r"(shared)
               : "memory");
  return piece;
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

// What the policies with bulk copies share.
class CudaBulk : public CudaWarp {
 public:
  // What was acquired is next read by the bulk-copy engine, through another proxy.
  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    const bool good = CudaWarp::waitAll(comm, flags, n, epoch, awaited);
    cuda_bulk::fenceProxy();
    return good;
  }
};

class CudaBulkWarp : public CudaBulk {
 public:
  static constexpr int kStages = kBulkStages;

  // The jobs that a warp does next, and where the pieces in its stages go.
  static constexpr int kDeskSinks = 32, kDeskJobs = 8;
  struct Desk {
    std::uint8_t* sinks[kDeskSinks];
    CopyJob jobs[kDeskJobs];
  };
  struct Piece {
    std::uint8_t* const* sinks;
    int sinkCount;
    std::uint32_t offset, bytes;
  };
  // Shared memory of each warp's own.
  struct Shared {
    Desk desks[2];
    Piece pieces[kStages];
    std::uint64_t full[kStages];
  };

  // `memory` is shared memory of this warp's own for kStages stages.
  MOE_LANES CudaBulkWarp(std::uint8_t* memory, WarpStages stages, Shared* shared)
      : stages_(memory),
        full_(shared->full),
        stageBytes_(stages.bytes),
        desks_(shared->desks),
        pieces_(shared->pieces) {
    if (lane() == 0) {
      for (int i = 0; i < kStages; ++i) cuda_bulk::initBarrier(full_ + i);
      cuda_bulk::fenceBarrierInit();
    }
    __syncwarp();
  }

  // Jobs are looked up several at a time by all lanes, as finding a sink takes a chain of loads, and issued by one.
  template <class JobOf, class SinkOf>
  MOE_LANES void streamRows(int n, int sinksMax, JobOf jobOf, SinkOf sinkOf) const {
    int batch = kDeskJobs;
    while (batch * sinksMax > kDeskSinks) batch /= 2;
    const int lanesEach = kLanes / batch;
    std::uint32_t before = used_, latest = used_;  // pieces up to the last batch but one, and up to the last
    for (int begin = 0, turn = 0; begin < n; begin += batch, turn ^= 1) {
      if (lane() == 0) {
        while (static_cast<std::int32_t>(before - stores_) > 0) laneStorePiece();  // their desk is used again
      }
      __syncwarp();
      Desk& desk = desks_[turn];
      const int own = lane() / lanesEach;
      if (own < batch) {
        const CopyJob job = begin + own < n ? jobOf(begin + own) : CopyJob{nullptr, 0, 0};
        if (lane() % lanesEach == 0) desk.jobs[own] = job;
        for (int sink = lane() % lanesEach; sink < job.sinks; sink += lanesEach) {
          desk.sinks[own * sinksMax + sink] = sinkOf(begin + own, sink);
        }
      }
      __syncwarp();
      if (lane() == 0) {
        for (int i = 0; i < batch; ++i) laneMoveJob(desk.jobs[i], desk.sinks + i * sinksMax);
        before = latest, latest = used_;
      }
    }
    if (lane() == 0) {
      while (stores_ != used_) laneStorePiece();
    }
    __syncwarp();
  }

  template <class FlagOf>
  MOE_LANES void publishAll(int n, FlagOf flagOf, Flag word) const {
    finishCopies();
    CudaWarp::publishAll(n, flagOf, word);
  }
  MOE_LANES void mark(Flag* word, Meeting meeting, WarpIndex team) const {
    finishCopies();
    CudaWarp::mark(word, meeting, team);
  }
  template <class FlagOf>
  MOE_LANES void announce(int n, FlagOf flagOf, Meeting meeting, WarpIndex team) const {
    finishCopies();
    CudaWarp::announce(n, flagOf, meeting, team);
  }

 protected:
  MOE_LANES bool gather() const {
    finishCopies();
    return true;
  }

 private:
  MOE_LANES void finishCopies() const {
    if (lane() == 0) cuda_bulk::waitComplete();
    __syncwarp();
  }

  MOE_LANES std::uint8_t* stage(std::uint32_t use) const { return stages_ + use % kStages * stageBytes_; }

  // One job's pieces: loads run ahead of stores by all stages but one.
  MOE_LANES void laneMoveJob(const CopyJob& job, std::uint8_t* const* sinks) const {
    if (job.sinks <= 0) return;
    for (std::uint32_t offset = 0; offset < job.bytes; offset += stageBytes_) {
      if (used_ - stores_ == kStages - 1) laneStorePiece();
      const std::uint32_t bytes = job.bytes - offset < stageBytes_ ? job.bytes - offset : stageBytes_;
      std::uint64_t* barrier = full_ + used_ % kStages;
      cuda_bulk::waitRead<1>();  // all but the latest store have left their stages
      pieces_[used_ % kStages] = {sinks, job.sinks, offset, bytes};
      cuda_bulk::expectBytes(barrier, bytes);
      cuda_bulk::load(stage(used_), job.source + offset, bytes, barrier);
      ++used_;
    }
  }

  MOE_LANES void laneStorePiece() const {
    const Piece piece = pieces_[stores_ % kStages];
    while (!cuda_bulk::tryWait(full_ + stores_ % kStages, stores_ / kStages & 1)) {
    }
    for (int sink = 0; sink < piece.sinkCount; ++sink) {
      std::uint8_t* to = piece.sinks[sink];
      if (to != nullptr) cuda_bulk::store(to + piece.offset, stage(stores_), piece.bytes);
    }
    cuda_bulk::commit();
    ++stores_;
  }

  std::uint8_t* stages_;
  std::uint64_t* full_;
  std::uint32_t stageBytes_;
  Desk* desks_;
  Piece* pieces_;
  // Since the kernel began; they say which stage and which barrier phase is next.
  mutable std::uint32_t used_ = 0, stores_ = 0;
};

}  // namespace moe
