// The GPU policy for large combines, sm_90 and newer. The terms of sums arrive by bulk copies, global -> shared, so
// that a warp's loads do not wait for its additions. Everything else is inherited from CudaWarp, and sums have the same
// bits. docs/decisions/0028-bulk-sums.md gives the reasons and measurements.
//
// reduceRows: the lanes look up 4 sums (36 terms together at most) in shared memory while the previous 4 are made. All
// lanes keep track of the next copy. One elected lane issues the copies, term after term, as many ahead as the warp has
// slots. All lanes wait for a slot's barrier, add their 16-byte pieces, and store after the last term. Rows of 12288
// bytes and more have slots of 3584 bytes, 7 pieces per lane (4 slots and 12 warps on an H200). Others have slots of
// 2048 bytes (6 slots and 16 warps).
//
// Order: before announce every lane issues fence.proxy.async, because the bulk copies of peers read its sums. waitAll
// is that of CudaBulk.
#pragma once

#include "device/policy/cuda/bulk_warp.h"
#include "device/policy/cuda/landing.h"

namespace moe {

// Slots have kPieces 16-byte pieces per lane. Long rows have few large slots; short rows have more small ones and more
// warps (kernel_numbers.h).
template <int kPieces>
class CudaBulkSums : public CudaBulk {
 public:
  static constexpr int kWarpsMax = sumWarpsMax(kPieces);

  // Sums are looked up in batches [batch % 2]: one batch is made while the next is looked up and begun. The terms of a
  // batch follow one another, sum after sum.
  static constexpr int kBatchTerms = 36, kBatchJobs = 4;
  struct Sum {
    std::uint8_t* out;
    std::uint32_t bytes, share;  // share: bytes of each term that a slot takes; fewer at the end
    int terms;
  };
  // Shared memory of each warp.
  struct Shared {
    const std::uint8_t* rows[2 * kBatchTerms];
    Sum sums[2 * kBatchJobs];
    std::uint64_t full[kSumSlotsMax];
    float weights[2 * kBatchTerms];
  };

  // `memory` is shared memory of this warp for `slots`, each of kSlotBytes.
  MOE_LANES CudaBulkSums(std::uint8_t* memory, WarpStages slots, Shared* shared)
      : slots_(keptInRegister(cuda_bulk::sharedAddress(memory))),
        shared_(keptInRegister(cuda_bulk::sharedAddress(shared))),
        slotCount_(slots.count),
        free_(slots.count) {
    if (lane() == 0) {
#pragma unroll 1
      for (int i = 0; i < slotCount_; ++i) cuda_bulk::initBarrier(full(i));
      cuda_bulk::fenceBarrierInit();
    }
    cuda_bulk::fenceProxy();  // stores of earlier kernels are read through another proxy
    __syncwarp();
  }

  template <SumList List>
  MOE_LANES bool reduceRows(const CommView&, const List& list) const {
    const int n = list.count(), termsMax = list.termsMax();
    int shift = 2;  // log2 of the batch size
    while (termsMax << shift > kBatchTerms) --shift;
    const int size = 1 << shift;
    __syncwarp();
    lookUp(list, 0, shift);
    if (!mayRead(list)) return false;
    Feed next{.shift = shift,
              .termsMax = termsMax,
              .known = n < size ? n : size,
              .sum = 0,
              .bytes = 0,
              .share = 0,
              .offset = 0,
              .terms = 0,
              .term = 0,
              .rows = 0};
#pragma unroll 1
    for (int begin = 0; begin < n; begin += size) {
      feed(next);  // needed because making a sum without terms does not call it
      const int after = begin + size;
      if (after < n) lookUp(list, after, shift);
      next.known = after + size < n ? after + size : n;
      const int turn = begin >> shift & 1, count = n - begin < size ? n - begin : size;
      withRowType(list.rowType(), [&](auto type) {
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          sumRow<decltype(type), List>(turn * kBatchJobs + i, turn * kBatchTerms + i * termsMax, next);
        }
      });
      __syncwarp();
    }
    return true;
  }

  // Lanes have stored sums that peers read by bulk copies, which use another proxy. Each lane's own stores must be
  // ordered before those reads.
  template <class FlagOf>
  MOE_LANES void announce(int n, FlagOf flagOf, Meeting meeting, WarpIndex team) const {
    cuda_bulk::fenceProxy();
    CudaWarp::announce(n, flagOf, meeting, team);
  }

 private:
  static constexpr std::uint32_t kQuad = sizeof(Quad), kPieceBytes = kSumPieceBytes;
  static constexpr std::uint32_t kSlotBytes = kPieces * kPieceBytes;

  // Keeps an address in a register, so that the compiler does not compute it again at each use.
  static MOE_LANES std::uint32_t keptInRegister(std::uint32_t address) {
    std::uint32_t kept;
    asm volatile("mov.u32 %0, %1;" : "=r"(kept) : "r"(address));
    return kept;
  }
  MOE_LANES Shared& shared() const {
    return *static_cast<Shared*>(__cvta_shared_to_generic(shared_));
  }
  MOE_LANES std::uint32_t full(int slot) const {
    return shared_ + static_cast<std::uint32_t>(offsetof(Shared, full) + static_cast<std::size_t>(slot) * 8);
  }

  template <class List>
  MOE_LANES void lookUp(const List& list, int begin, int shift) const {
    Shared& s = shared();
    const int turn = begin >> shift & 1, lanesEach = kLanes >> shift, own = lane() / lanesEach;
    const SumJob job = begin + own < list.count() ? list.job(begin + own) : SumJob{nullptr, 0, 0};
    if (lane() % lanesEach == 0)
      s.sums[turn * kBatchJobs + own] = {job.out, job.bytes, sumShare(job.bytes, kSlotBytes), job.terms};
    for (int term = lane() % lanesEach; term < job.terms; term += lanesEach) {
      const int at = turn * kBatchTerms + own * list.termsMax() + term;
      s.rows[at] = list.term(begin + own, term);
      if constexpr (Weighted<List>) s.weights[at] = list.weight(begin + own, term);
    }
    __syncwarp();
  }

  // The next copy, which is a term's share of a sum. It is the same in all lanes; one lane issues the copy.
  struct Feed {
    int shift, termsMax, known;  // known: sums that have been looked up
    int sum;                     // the sum that has been begun if `bytes` is not 0, else the next one
    std::uint32_t bytes, share, offset;
    int terms, term, rows;  // its terms begin at `rows`
  };

  // Issues copies as long as a slot is free and a sum is known.
  MOE_LANES void feed(Feed& f) const {
    const Shared& s = shared();
#pragma unroll 1
    while (free_ > 0) {
      if (f.bytes == 0) {
        if (f.sum == f.known) return;
        const int turn = f.sum >> f.shift & 1, item = f.sum & ((1 << f.shift) - 1);
        const Sum& sum = s.sums[turn * kBatchJobs + item];
        f.terms = sum.terms;
        f.rows = turn * kBatchTerms + item * f.termsMax;
        f.share = sum.share;
        if (f.terms > 0) f.bytes = sum.bytes;
        if (f.bytes == 0) ++f.sum;
        continue;
      }
      const std::uint32_t left = f.bytes - f.offset;
      copy(fed_, s.rows[f.rows + f.term] + f.offset, left < f.share ? left : f.share);
      if (++fed_ == slotCount_) fed_ = 0;
      --free_;
      if (++f.term < f.terms) continue;
      f.term = 0;
      f.offset += f.share;
      if (f.offset < f.bytes) continue;
      f.offset = 0;
      f.bytes = 0;
      ++f.sum;
    }
  }

  MOE_LANES void copy(int slot, const std::uint8_t* from, std::uint32_t bytes) const {
    if (!cuda_bulk::elected()) return;
    cuda_bulk::expectBytes(full(slot), bytes);
    cuda_bulk::load(slots_ + static_cast<std::uint32_t>(slot) * kSlotBytes, from, bytes, full(slot));
  }

  // Makes one sum. The part of a slot beyond the share has old content, which is added too but not stored.
  template <class Type, class List>
  MOE_LANES void sumRow(int item, int first, Feed& next) const {
    const Sum job = shared().sums[item];
#pragma unroll 1
    for (std::uint32_t offset = 0; offset < job.bytes; offset += job.share) {
      const std::uint32_t left = job.bytes - offset, share = left < job.share ? left : job.share;
      Accumulator<Type> sum[kPieces];
#pragma unroll 1
      for (int term = first; term < first + job.terms; ++term) {
        const float weight = Weighted<List> ? shared().weights[term] : 1.0f;
        takeSlot<Type, Weighted<List>>(sum, weight);
        __syncwarp();  // every lane has read its pieces, so the slot is free
        ++free_;
        feed(next);
      }
      const int quads = static_cast<int>(share / kQuad);
      auto* out = reinterpret_cast<Quad*>(job.out + offset) + lane();
#pragma unroll
      for (int u = 0; u < kPieces; ++u) {
        if (lane() + u * kLanes < quads) cuda_landing::put<MadeToLand<List>>(out + u * kLanes, sum[u].rounded());
      }
    }
  }

  // Adds the content of the next slot.
  template <class Type, bool kWeighted>
  MOE_LANES void takeSlot(Accumulator<Type> (&sum)[kPieces], float weight) const {
    while (!cuda_bulk::tryWait(full(taken_), parity_)) {
    }
    const std::uint32_t from =
        slots_ + static_cast<std::uint32_t>(taken_) * kSlotBytes + static_cast<std::uint32_t>(lane()) * kQuad;
    Quad piece[kPieces];
#pragma unroll
    for (int u = 0; u < kPieces; ++u) piece[u] = cuda_bulk::loadQuad(from + u * kPieceBytes);
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      sum[u].template add<kWeighted>(piece[u], weight);
    }
    if (++taken_ == slotCount_) taken_ = 0, parity_ ^= 1;
  }

  std::uint32_t slots_, shared_;  // addresses in shared memory
  int slotCount_;
  // The slot that is filled next, and the number of free slots; the slot that is read next, and the phase of its
  // barrier. They are the same in all lanes.
  mutable int fed_ = 0, free_, taken_ = 0;
  mutable std::uint32_t parity_ = 0;
};

static_assert(Moves<CudaBulkSums<kSumPiecesShort>> && Moves<CudaBulkSums<kSumPiecesLong>>);

}  // namespace moe
