// The GPU policy for sm_90 and newer: rows move with the bulk-copy engine, global -> shared -> global. Everything else
// is inherited from CudaWarp. The stages and their sizes come from measurements in docs/internals/notebook.md.
//
// streamRows: the lanes look up at most 8 jobs and their sinks, keep them in shared memory, and go through the pieces
// together. One elected lane issues the copies. A warp has 3 stages, and loads run ahead of stores. All lanes store
// rows that stay on this rank from the stage (docs/decisions/0032-own-rows-from-the-stage.md). The side payload goes
// after the last piece of its row in the same stage.
//
// Order: publishAll, announce, mark and put first finish the copies: every lane issues fence.proxy.async, and the
// elected lane waits until the copies are complete. waitAll ends with fence.proxy.async, because bulk copies, which use
// another proxy, read next.
#pragma once

#include "device/policy/cuda/kernel_numbers.h"
#include "device/policy/cuda/warp.h"

namespace moe {

// The bulk-copy instructions.
namespace cuda_bulk {

MOE_LANES std::uint32_t sharedAddress(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}
// A barrier is identified by its address in shared memory.
MOE_LANES void initBarrier(std::uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}
MOE_LANES void fenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
MOE_LANES void expectBytes(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
MOE_LANES bool tryWait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}
MOE_LANES void load(std::uint32_t shared, const void* global, std::uint32_t bytes, std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}
// True in one of the calling lanes. In a whole warp it is always the same lane.
MOE_LANES bool elected() {
  std::uint32_t is;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(is));
  return is != 0;
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

// The common part of the policies with bulk copies.
class CudaBulk : public CudaWarp {
 public:
  static constexpr bool kPicks = false;  // pickReady takes registers, so combines behind ready words use CudaWarp

  // The bulk-copy engine, which uses another proxy, reads next what was acquired.
  MOE_LANES bool waitAll(const CommView& comm, Flag* flags, int n, std::uint64_t epoch, Awaited awaited) const {
    const bool good = CudaWarp::waitAll(comm, flags, n, epoch, awaited);
    cuda_bulk::fenceProxy();
    return good;
  }
};

class CudaBulkWarp : public CudaBulk {
 public:
  static constexpr int kStages = kBulkStages, kWarpsMax = kBulkWarpsMax;

  // The jobs that a warp does next, and their sinks: one place per lane.
  static constexpr int kDeskJobs = 8;
  struct Desk {
    std::uint8_t *sinks[kLanes], *sides[kLanes];
    CopyJob jobs[kDeskJobs];
  };
  // The content of a stage: parts of a row and, after it, of its side payload. byEngine has a bit for each sink in the
  // desk that the engine stores to, and byLanes for each that the lanes store to.
  struct Piece {
    const Desk* desk;
    unsigned byEngine, byLanes;
    std::uint32_t offset, bytes, sideOffset, sideBytes;
  };
  // Shared memory of each warp.
  struct Shared {
    Desk desks[2];
    Piece pieces[kStages];
    std::uint64_t full[kStages];
  };

  // `memory` is shared memory of this warp for kStages stages.
  MOE_LANES CudaBulkWarp(std::uint8_t* memory, WarpStages stages, Shared* shared)
      : stages_(memory),
        full_(cuda_bulk::sharedAddress(shared->full)),
        stageBytes_(stages.bytes),
        desks_(shared->desks),
        pieces_(shared->pieces) {
    if (lane() == 0) {
      for (int i = 0; i < kStages; ++i) cuda_bulk::initBarrier(full(static_cast<std::uint32_t>(i)));
      cuda_bulk::fenceBarrierInit();
    }
    __syncwarp();
  }

  // Jobs are looked up several at a time, with a lane for each sink, because finding a sink takes a chain of loads. The
  // engine processes one copy after another, and copies to peers wait for the wire. Therefore, if a row also goes to
  // peers, the lanes store the copies that stay on this rank.
  template <CopyList List>
  MOE_LANES bool streamRows(const List& list) const {
    constexpr bool kPairs = HasSides<List>;
    if (!mayPlace(list)) return false;
    const int n = list.count(), sinksMax = list.sinksMax();
    int batch = kDeskJobs;
    while (batch * sinksMax > kLanes) batch /= 2;
    const int lanesEach = kLanes / batch, own = lane() / lanesEach, sink = lane() % lanesEach;
    std::uint32_t before = used_, latest = used_;  // numbers of pieces when the last batch but one ended, and when
                                                   // the last one ended
    __syncwarp();
    for (int begin = 0, turn = 0; begin < n; begin += batch, turn ^= 1) {
      while (static_cast<std::int32_t>(before - stores_) > 0) storePiece<kPairs>();  // their desk is about to be reused
      __syncwarp();
      Desk& desk = desks_[turn];
      const CopyJob job = begin + own < n ? list.job(begin + own) : CopyJob{nullptr, 0, 0};
      const Sink to = sink < job.sinks ? list.sink(begin + own, sink) : Sink{nullptr, nullptr, false};
      if (sink == 0) desk.jobs[own] = job;
      desk.sinks[lane()] = to.row;
      if (kPairs) desk.sides[lane()] = to.side;
      const unsigned away = __ballot_sync(kAll, to.row != nullptr && !to.here);
      const unsigned here = __ballot_sync(kAll, to.row != nullptr && to.here);
      __syncwarp();
      for (int item = 0; item < batch; ++item) {
        const unsigned lanes = kAll >> (kLanes - lanesEach) << (item * lanesEach);
        if ((away & lanes) != 0) {
          moveJob<kPairs>(desk, item, away & lanes, here & lanes);
        } else if ((here & lanes) != 0) {
          moveJob<kPairs>(desk, item, here & lanes, 0);
        }
      }
      before = latest;
      latest = used_;
    }
    while (stores_ != used_) storePiece<kPairs>();
    __syncwarp();
    return true;
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
  // Bulk copies, which use another proxy, may next read what lanes have stored. So each lane orders its own stores.
  MOE_LANES void finishCopies() const {
    cuda_bulk::fenceProxy();
    if (cuda_bulk::elected()) cuda_bulk::waitComplete();
    __syncwarp();
  }

  MOE_LANES std::uint8_t* stage(std::uint32_t use) const { return stages_ + use % kStages * stageBytes_; }
  MOE_LANES std::uint32_t full(std::uint32_t use) const { return full_ + use % kStages * 8; }

  // Moves the pieces of one job. Loads run ahead of stores by all stages but one. A side payload goes with the row's
  // last piece, because the engine processes one copy after another. If it does not fit there, its rest takes further
  // pieces.
  template <bool kPairs>
  MOE_LANES void moveJob(const Desk& desk, int item, unsigned byEngine, unsigned byLanes) const {
    const CopyJob job = desk.jobs[item];
    Piece piece{.desk = &desk,
                .byEngine = byEngine,
                .byLanes = byLanes,
                .offset = 0,
                .bytes = 0,
                .sideOffset = 0,
                .sideBytes = 0};
    for (; piece.offset < job.bytes; piece.offset += piece.bytes) {
      const std::uint32_t left = job.bytes - piece.offset;
      piece.bytes = left < stageBytes_ ? left : stageBytes_;
      if (kPairs && piece.bytes == left) piece.sideBytes = sideShare(job, piece);
      loadPiece<kPairs>(job, piece);
    }
    if constexpr (kPairs) {
      while ((piece.sideOffset += piece.sideBytes) < job.sideBytes) {
        piece.bytes = 0;
        piece.sideBytes = sideShare(job, piece);
        loadPiece<kPairs>(job, piece);
      }
    }
  }
  MOE_LANES std::uint32_t sideShare(const CopyJob& job, const Piece& piece) const {
    const std::uint32_t left = job.sideBytes - piece.sideOffset, room = stageBytes_ - piece.bytes;
    return left < room ? left : room;
  }

  template <bool kPairs>
  MOE_LANES void loadPiece(const CopyJob& job, const Piece& piece) const {
    if (used_ - stores_ == kStages - 1) storePiece<kPairs>();
    __syncwarp();  // every lane has read the stage
    if (cuda_bulk::elected()) {
      cuda_bulk::waitRead<1>();  // all stores but the latest have read their stages
      pieces_[used_ % kStages] = piece;
      const std::uint32_t barrier = full(used_), to = cuda_bulk::sharedAddress(stage(used_));
      cuda_bulk::expectBytes(barrier, piece.bytes + (kPairs ? piece.sideBytes : 0));
      if (!kPairs || piece.bytes > 0) cuda_bulk::load(to, job.source + piece.offset, piece.bytes, barrier);
      if (kPairs && piece.sideBytes > 0) {
        cuda_bulk::load(to + piece.bytes, job.side + piece.sideOffset, piece.sideBytes, barrier);
      }
    }
    ++used_;
  }

  template <bool kPairs>
  MOE_LANES void storePiece() const {
    __syncwarp();
    const Piece piece = pieces_[stores_ % kStages];
    const std::uint8_t* from = stage(stores_);
    while (!cuda_bulk::tryWait(full(stores_), stores_ / kStages & 1)) {
    }
    if (cuda_bulk::elected()) {
      for (unsigned left = piece.byEngine; left != 0; left &= left - 1) {
        const int sink = __ffs(static_cast<int>(left)) - 1;
        if (!kPairs || piece.bytes > 0) {
          cuda_bulk::store(piece.desk->sinks[sink] + piece.offset, from, piece.bytes);
        }
        if (kPairs && piece.sideBytes > 0) {
          cuda_bulk::store(piece.desk->sides[sink] + piece.sideOffset, from + piece.bytes, piece.sideBytes);
        }
      }
      cuda_bulk::commit();
    }
    for (unsigned left = piece.byLanes; left != 0; left &= left - 1) {
      const int sink = __ffs(static_cast<int>(left)) - 1;
      keep(piece.desk->sinks[sink] + piece.offset, cuda_bulk::sharedAddress(from), piece.bytes);
      if (kPairs && piece.sideBytes > 0) {
        keep(piece.desk->sides[sink] + piece.sideOffset, cuda_bulk::sharedAddress(from) + piece.bytes, piece.sideBytes);
      }
    }
    ++stores_;
  }

  // There are no bounds checks within a batch, because they make the code far longer.
  static MOE_LANES void keep(std::uint8_t* out, std::uint32_t from, std::uint32_t bytes) {
    constexpr int kAtOnce = kLanes * kBatch;
    auto* to = reinterpret_cast<Quad*>(out) + lane();
    from += static_cast<std::uint32_t>(lane()) * kQuad;
    int left = static_cast<int>(bytes / kQuad) - lane();
    MOE_ROLLED
    for (; left > kAtOnce - kLanes; left -= kAtOnce, to += kAtOnce, from += kAtOnce * kQuad) {
      Quad piece[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j)
        piece[j] = cuda_bulk::loadQuad(from + static_cast<std::uint32_t>(j) * kLanes * kQuad);
#pragma unroll
      for (int j = 0; j < kBatch; ++j) to[j * kLanes] = piece[j];
    }
    MOE_ROLLED
    for (; left > 0; left -= kLanes, to += kLanes, from += kLanes * kQuad) *to = cuda_bulk::loadQuad(from);
  }

  static constexpr std::uint32_t kQuad = sizeof(Quad);

  std::uint8_t* stages_;
  std::uint32_t full_;
  std::uint32_t stageBytes_;
  Desk* desks_;
  Piece* pieces_;
  // Pieces since the kernel began. They determine the next stage and the next phase of its barrier.
  mutable std::uint32_t used_ = 0, stores_ = 0;
};

static_assert(Moves<CudaBulkWarp>);

}  // namespace moe
