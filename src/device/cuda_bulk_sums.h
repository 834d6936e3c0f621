// The GPU policy for combine in waves, sm_90 and newer: the terms of sums come by bulk copies, global -> shared, many
// ahead of the sum that is being made, so that a warp's loads do not wait for its additions. One lane issues the
// copies, all lanes add. What else a warp does is CudaWarp's. Terms are added and rounded as there. Why, and what was
// measured: docs/decisions/0028-bulk-sums.md.
#pragma once

#include "device/cuda_bulk_warp.h"

namespace moe {

class CudaBulkSums : public CudaBulk {
 public:
  // Sums are looked up in batches, of which one is made while the other is looked up and begun: [batch % 2]. The terms
  // of a batch lie one sum after the other.
  static constexpr int kBatchTerms = 36, kBatchJobs = 4;
  struct Batches {
    const std::uint8_t* rows[2 * kBatchTerms];
    SumJob jobs[2 * kBatchJobs];
    float weights[2 * kBatchTerms];
  };
  // Shared memory of each warp's own.
  struct Shared {
    Batches batches;
    std::uint64_t full[kSumSlotsMax];
  };

  // `memory` is shared memory of this warp's own for `slots`, each of kSumSlotBytes.
  MOE_LANES CudaBulkSums(std::uint8_t* memory, WarpStages slots, Shared* shared)
      : slots_(keptInRegister(cuda_bulk::sharedAddress(memory))),
        shared_(shared),
        slotCount_(slots.count),
        free_(slots.count) {
    if (lane() == 0) {
#pragma unroll 1
      for (int i = 0; i < slotCount_; ++i) cuda_bulk::initBarrier(shared_->full + i);
      cuda_bulk::fenceBarrierInit();
    }
    cuda_bulk::fenceProxy();  // what the kernels before this one have stored is read through another proxy
    __syncwarp();
  }

  template <bool kWeighted, bool kLanding = false, class MayRead, class JobOf, class TermOf, class WeightOf>
  MOE_LANES bool reduceRows(int n, int rowType, int termsMax, MayRead mayRead, JobOf jobOf, TermOf termOf,
                            WeightOf weightOf) const {
    int shift = 2;  // of a batch's size
    while (termsMax << shift > kBatchTerms) --shift;
    const int size = 1 << shift;
    __syncwarp();
    lookUp<kWeighted>(0, n, shift, termsMax, jobOf, termOf, weightOf);
    if (!mayRead()) return false;
    Feed feed{shift, termsMax, n < size ? n : size, 0, 0, 0, 0, 0, 0};
#pragma unroll 1
    for (int begin = 0; begin < n; begin += size) {
      if (lane() == 0) laneFeed(feed);  // sums without terms feed nothing when they are made
      const int next = begin + size, after = next + size;
      if (next < n) lookUp<kWeighted>(next, n, shift, termsMax, jobOf, termOf, weightOf);
      feed.known = after < n ? after : n;
      const int turn = begin >> shift & 1, count = n - begin < size ? n - begin : size;
      withRowType(rowType, [&](auto type) {
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          const SumJob job = shared_->batches.jobs[turn * kBatchJobs + i];
          sumRow<decltype(type), kWeighted, kLanding>(job, turn * kBatchTerms + i * termsMax, feed);
        }
      });
      __syncwarp();
    }
    return true;
  }

  // Lanes have stored sums, and peers read them by bulk copies, through another proxy: each lane's own stores must be
  // ordered before those reads.
  template <class FlagOf>
  MOE_LANES void announce(int n, FlagOf flagOf, Meeting meeting, WarpIndex team) const {
    cuda_bulk::fenceProxy();
    CudaWarp::announce(n, flagOf, meeting, team);
  }

 private:
  // An address that the compiler does not compute anew at each use.
  static MOE_LANES std::uint32_t keptInRegister(std::uint32_t address) {
    std::uint32_t kept;
    asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(address));
    return kept;
  }

  template <bool kWeighted, class JobOf, class TermOf, class WeightOf>
  MOE_LANES void lookUp(int begin, int n, int shift, int termsMax, JobOf jobOf, TermOf termOf,
                        WeightOf weightOf) const {
    Batches& b = shared_->batches;
    const int turn = begin >> shift & 1, lanesEach = kLanes >> shift, own = lane() / lanesEach;
    const SumJob job = begin + own < n ? jobOf(begin + own) : SumJob{nullptr, 0, 0};
    if (lane() % lanesEach == 0) b.jobs[turn * kBatchJobs + own] = job;
    for (int term = lane() % lanesEach; term < job.terms; term += lanesEach) {
      const int at = turn * kBatchTerms + own * termsMax + term;
      b.rows[at] = termOf(begin + own, term);
      if (kWeighted) b.weights[at] = weightOf(begin + own, term);
    }
    __syncwarp();
  }

  // What the issuing lane copies next: a term's share of a slot's width of a sum.
  struct Feed {
    int shift, termsMax, known;  // sums that have been looked up
    int sum;                     // the one that is begun, if `bytes` is not 0, else the next
    std::uint32_t bytes, offset;
    int terms, term, rows;  // its terms begin at `rows`
  };

  // As long as a slot is free and a sum known.
  MOE_LANES void laneFeed(Feed& f) const {
    const Batches& b = shared_->batches;
#pragma unroll 1
    while (free_ > 0) {
      if (f.bytes == 0) {
        if (f.sum == f.known) return;
        const int turn = f.sum >> f.shift & 1, item = f.sum & ((1 << f.shift) - 1);
        f.terms = b.jobs[turn * kBatchJobs + item].terms;
        f.rows = turn * kBatchTerms + item * f.termsMax;
        if (f.terms > 0) f.bytes = b.jobs[turn * kBatchJobs + item].bytes;
        if (f.bytes == 0) ++f.sum;
        continue;
      }
      const std::uint32_t left = f.bytes - f.offset, share = left < kSumSlotBytes ? left : kSumSlotBytes;
      std::uint64_t* barrier = shared_->full + fed_;
      cuda_bulk::expectBytes(barrier, share);
      cuda_bulk::load(slots_ + static_cast<std::uint32_t>(fed_) * kSumSlotBytes, b.rows[f.rows + f.term] + f.offset,
                      share, barrier);
      if (++fed_ == slotCount_) fed_ = 0;
      --free_;
      if (++f.term < f.terms) continue;
      f.term = 0;
      f.offset += kSumSlotBytes;
      if (f.offset < f.bytes) continue;
      f.offset = 0, f.bytes = 0;
      ++f.sum;
    }
  }

  // The sum whose terms begin at `first`. Behind the end of a row a slot holds what it held before; that is added too,
  // and not stored.
  template <class Type, bool kWeighted, bool kLanding>
  MOE_LANES void sumRow(const SumJob& job, int first, Feed& feed) const {
#pragma unroll 1
    for (std::uint32_t offset = 0; offset < job.bytes; offset += kSumSlotBytes) {
      Accumulator<Type> sum[kPieces];
#pragma unroll 1
      for (int term = first; term < first + job.terms; ++term) {
        const float weight = kWeighted ? shared_->batches.weights[term] : 1.0f;
        while (!cuda_bulk::tryWait(shared_->full + taken_, parity_)) {
        }
        const std::uint32_t from =
            slots_ + static_cast<std::uint32_t>(taken_) * kSumSlotBytes + static_cast<std::uint32_t>(lane()) * kQuad;
        Quad piece[kPieces];
#pragma unroll
        for (int u = 0; u < kPieces; ++u) piece[u] = cuda_bulk::loadQuad(from + u * kLanes * kQuad);
#pragma unroll
        for (int u = 0; u < kPieces; ++u) sum[u].template add<kWeighted>(piece[u], weight);
        if (++taken_ == slotCount_) taken_ = 0, parity_ ^= 1;
        __syncwarp();  // every lane has its pieces: the slot is free
        if (lane() == 0) {
          ++free_;
          laneFeed(feed);
        }
      }
      const std::uint32_t left = job.bytes - offset;
      const int quads = static_cast<int>((left < kSumSlotBytes ? left : kSumSlotBytes) / kQuad);
      auto* out = reinterpret_cast<Quad*>(job.out + offset) + lane();
#pragma unroll
      for (int u = 0; u < kPieces; ++u) {
        if (lane() + u * kLanes < quads) cuda_landing::put<kLanding>(out + u * kLanes, sum[u].rounded());
      }
    }
  }

  static constexpr std::uint32_t kQuad = sizeof(Quad);
  static constexpr int kPieces = kSumSlotBytes / kLanes / kQuad;

  std::uint32_t slots_;  // in shared memory
  Shared* shared_;
  int slotCount_;
  // Which slot is filled next, by the issuing lane, which alone knows how many are free; which is read next, and the
  // phase of its barrier then.
  mutable int fed_ = 0, free_, taken_ = 0;
  mutable std::uint32_t parity_ = 0;
};

}  // namespace moe
