// How a CUDA warp makes sums of few terms without weights in a wire format, in kernels for one format: it codes single
// rows, and sums up to two terms. It makes two units of 512 elements at the same time. Code for more terms would lie in
// the way, and take registers. The bits are those of cuda_wire::Sum.
//
// A sum begins with this rank's own row, if it has one that is not coded yet. Its lanes have its values without codes
// that anybody reads. The order of two terms makes no difference to a sum that begins with +0.
#pragma once

#include "device/policy/cuda/sums.h"
#include "device/policy/cuda/wire_piece.h"

namespace moe::cuda_wire {

// Whether a kernel for this format has such sums. They need more registers than the compiler finds for GPUs before
// sm_90, and code of their own.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
template <int kWire>
inline constexpr bool kHasFew = false;
#else
template <int kWire>
inline constexpr bool kHasFew = kWire != kWireRow;
#endif

// The most terms of such sums.
template <WireList List>
inline constexpr int kFewTerms = List::kReads ? 2 : 1;

// The same for all sums of a list, because warps of a block share the code in the instruction cache.
template <int kWire, WireList List>
MOE_LANES bool hasFewTerms(const List& list) {
  if constexpr (Weighted<List>) {
    if (list.weighs()) return false;
  }
  return list.termsMax() <= kFewTerms<List>;
}

template <int kWire, WireList List>
class FewSum {
  static constexpr bool kOwns = kOwnsRows<kWire, List>;
  static constexpr int kUnits = 2, kQuads = kPieceQuads<Bf16>, kElement = kElementBytes<Bf16>;
  using Sums = PieceSums<Bf16>;
  using Pieces = Quad[kUnits][kQuads];

 public:
  MOE_LANES FewSum(const List& list, int i, const cuda_sums::Desk& desk, int item, int first, int lane)
      : wire_{kWire, list.wire().elements},
        part_(list.part(i)),
        job_(desk.jobs[item]),
        rows_(desk.rows + first),
        coded_(List::kReads ? list.coded(i) : 0),
        own_(kOwns ? desk.own[item] : -1),
        lane_(lane) {}

  MOE_LANES void make() const {
    if (job_.bytes == 0) return;
    if constexpr (List::kCodes) {
      code();
    } else {
      sum();
    }
  }

 private:
  // This lane's first element in unit u of those from `begin` on.
  MOE_LANES int elementOf(int begin, int u) const { return begin + u * kStep + lane_ * kWirePiece; }

  // Row `term`, or zeros if there is none.
  MOE_LANES void loadRow(Pieces& pieces, int term, int begin, int end) const {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int element = elementOf(begin, u);
      const bool loads = term < job_.terms && element < end;
      const auto* from = reinterpret_cast<const Quad*>(rows_[term] + std::ptrdiff_t{element} * kElement);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) pieces[u][q] = loads ? from[q] : Quad{0, 0, 0, 0};
    }
  }

  // The factor of a row, from all its elements.
  MOE_LANES WireFactor factorOf(int term) const {
    std::uint32_t amax = 0;
#pragma unroll 1
    for (int begin = 0; begin < wire_.elements; begin += kUnits * kStep) {
      Pieces pieces;
      loadRow(pieces, term, begin, wire_.elements);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) amax = max(amax, RowPiece::of(pieces[u]).amax());
    }
    return WireFactor::of(blockMax(amax, kLanes));
  }

  // ---- Coding

  MOE_LANES void code() const {
    const Coder<MadeToLand<List>> coder{wire_, job_.out, lane_};
    WireFactor factor{};
    if (wire_.hasFactor()) {
      factor = factorOf(0);
      if (part_.index == 0) coder.storeFactor(factor);
    }
#pragma unroll 1
    for (int begin = part_.begin; begin < part_.end; begin += kUnits * kStep) {
      Pieces pieces;
      loadRow(pieces, 0, begin, part_.end);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        if (u > 0 && begin + u * kStep >= part_.end) break;
        const int element = elementOf(begin, u);
        coder.store(RowPiece::of(pieces[u]), element, element < part_.end, factor);
      }
    }
  }

  // ---- Reading

  MOE_LANES void sum() const {
    WireFactor factor{};
    if (wire_.hasFactor() && own_ >= 0) factor = factorOf(own_);
#pragma unroll 1
    for (int begin = part_.begin; begin < part_.end; begin += kUnits * kStep) sumUnits(begin, factor);
  }

  // All loads of the units from `begin` on are on their way before the first sum.
  MOE_LANES void sumUnits(int begin, const WireFactor& factor) const {
    Pieces own;
    if (kOwns && own_ >= 0) loadRow(own, own_, begin, part_.end);
    Coded piece[kUnits][kFewTerms<List>];
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
#pragma unroll
      for (int term = 0; term < kFewTerms<List>; ++term) {
        piece[u][term] = {};
        const int element = elementOf(begin, u);
        if (isCoded(term) && element < part_.end)
          piece[u][term] = loadCoded(wire_, PlainRow{rows_[term]}, element, part_.index);
      }
    }
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int element = elementOf(begin, u);
      Sums sums;
      if constexpr (kOwns) {
        if (own_ >= 0) addUncoded(wire_, sums, RowPiece::of(own[u]), factor);
      }
#pragma unroll
      for (int term = 0; term < kFewTerms<List>; ++term) {
        if (isCoded(term)) addCoded<Bf16>(wire_, sums, piece[u][term], element);
      }
      if (element < part_.end) finish(sums, element);
    }
  }
  MOE_LANES bool isCoded(int term) const {
    return term < coded_ && term != own_;
  }

  // Adds the rows behind the coded ones, and stores the sums.
  MOE_LANES void finish(Sums& sums, int element) const {
    const std::ptrdiff_t at = std::ptrdiff_t{element} * kElement;
#pragma unroll 1
    for (int term = coded_; term < job_.terms; ++term) {
      const auto* from = reinterpret_cast<const Quad*>(rows_[term] + at);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) sums[q].template add<false>(from[q], 1.0f);
    }
    auto* out = reinterpret_cast<Quad*>(job_.out + at);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) out[q] = sums[q].rounded();
  }

  const WireRow wire_;
  const WirePart part_;
  const SumJob job_;
  const std::uint8_t* const* rows_;
  const int coded_, own_, lane_;
};

}  // namespace moe::cuda_wire
