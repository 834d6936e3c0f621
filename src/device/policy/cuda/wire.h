// How a CUDA warp makes sums in a wire format (rows/wire_sums.h), from rows that its lanes load. Codes, scales and row
// floats of four coded terms are loaded at the same time; so are four rows of the row type. Sums with landing words
// load three at the same time. Sums of few terms have code of their own: see wire_few.h.
//
// Landing words are emptied when all lanes have what they need. Each lane empties its codes, and the first lane that
// shares a scale's word empties that word. The row's float stays until the part is complete.
#pragma once

#include "device/policy/cuda/sums.h"
#include "device/policy/cuda/wire_piece.h"

namespace moe::cuda_wire {

// `kWire`: the format of all rows of this kernel; kWireRow: each list says its own.
template <int kWire, class Type, WireList List, class Wait>
class Sum {
  static constexpr int kQuads = kPieceQuads<Type>, kElement = kElementBytes<Type>;
  using Sums = PieceSums<Type>;
  static constexpr bool kOwns = kOwnsRows<kWire, List>;
  // Code that waits for rows has few registers left.
  static constexpr int kTermsAtOnce = Wait::kTakes ? 3 : 4, kRowsAtOnce = kTermsAtOnce;

 public:
  MOE_LANES Sum(const List& list, int i, const cuda_sums::Desk& desk, int item, int first, int lane, const Wait& wait)
      : desk_(desk),
        wire_{kWire == kWireRow ? list.wire().type : kWire, list.wire().elements},
        part_(list.part(i)),
        job_(desk.jobs[item]),
        first_(first),
        coded_(List::kReads ? list.coded(i) : 0),
        own_(kOwns ? desk.own[item] : -1),
        landed_(Wait::kTakes ? desk.landing[item] : 0),
        lane_(lane),
        wait_(wait) {}

  // False, on any lane: a row did not arrive.
  MOE_LANES bool make() const {
    if (job_.bytes == 0) return true;
    WireFactor factor{};
    if constexpr (List::kCodes) {
      if (wire_.hasFactor()) factor = findFactor();
    } else if constexpr (kOwns) {
      if (wire_.hasFactor() && own_ >= 0) factor = findOwnFactor();
    }
    bool good = true;
#pragma unroll 1
    for (int begin = part_.begin; begin < part_.end; begin += kStep) {
      Sums sums;
      good = addTerms(sums, begin, part_.end, factor) && good;
      store(sums, elementOf(begin), factor);
    }
    if constexpr (Wait::kTakes) {
      if (wire_.hasFactor()) good = takeFactors() && good;
    }
    return good;
  }

 private:
  MOE_LANES const std::uint8_t* row(int term) const {
    return desk_.rows[first_ + term];
  }

  // This lane's first element of those from `begin` on.
  MOE_LANES int elementOf(int begin) const {
    return begin + lane_ * kWirePiece;
  }

  MOE_LANES void store(const Sums& sums, int element, const WireFactor& factor) const {
    const bool there = element < part_.end;
    if constexpr (List::kCodes) {
      coder().store(pieceOf<Type>(sums), element, there, factor);
    } else if (there) {
      auto* out = reinterpret_cast<Quad*>(job_.out + std::ptrdiff_t{element} * kElement);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) out[q] = sums[q].rounded();
    }
  }

  // Adds up this lane's elements from `begin` on, if they are below `end`. `factor`: that of the row that is not coded
  // yet.
  MOE_LANES bool addTerms(Sums& sums, int begin, int end, const WireFactor& factor = {}) const {
    bool good = true;
    if constexpr (List::kReads) good = addCodedTerms(sums, begin, end, factor);
#pragma unroll 1
    for (int term = coded_; term < job_.terms; term += kRowsAtOnce) addRows(sums, term, begin, end);
    return good;
  }
  MOE_LANES bool addCodedTerms(Sums& sums, int begin, int end, const WireFactor& factor) const {
    Quad own[kQuads];
    if constexpr (kOwns) {
      if (own_ >= 0) loadOwn(own, begin, end);
    }
    bool good = true;
#pragma unroll 1
    for (int term = 0; term < coded_; term += kTermsAtOnce) {
      Coded piece[kTermsAtOnce];
      loadCodes(piece, term, begin, end);
      if constexpr (kOwns) {
        if (own_ >= term && own_ < term + kTermsAtOnce) codeOwn(piece, own, term, factor);
      }
      good = addCodes(sums, piece, term, begin, end) && good;
    }
    return good;
  }

  // Adds rows of the row type.
  MOE_LANES void addRows(Sums& sums, int term, int begin, int end) const {
    Quad piece[kRowsAtOnce][kQuads];
    const int element = elementOf(begin);
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const bool loads = element < end && term + j < job_.terms;
      const auto* from =
          reinterpret_cast<const Quad*>(row(loads ? term + j : term) + std::ptrdiff_t{element} * kElement);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) piece[j][q] = loads ? from[q] : Quad{0, 0, 0, 0};
    }
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const float weight = Weighted<List> && term + j < job_.terms ? desk_.weights[first_ + term + j] : 1.0f;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) sums[q].template add<Weighted<List>>(piece[j][q], weight);
    }
  }

  // ---- Reading

  MOE_LANES void loadCodes(Coded (&piece)[kTermsAtOnce], int term, int begin, int end) const {
#pragma unroll
    for (int j = 0; j < kTermsAtOnce; ++j) {
      piece[j] = {};
      const bool loads = elementOf(begin) < end && term + j < coded_;
      if (loads && term + j != own_) piece[j] = load(term + j, elementOf(begin));
    }
  }
  MOE_LANES bool addCodes(Sums& sums, Coded (&piece)[kTermsAtOnce], int term, int begin, int end) const {
    const int element = elementOf(begin);
    bool good = true;
    if constexpr (Wait::kTakes) good = settle(piece, term, element, element < end);
#pragma unroll
    for (int j = 0; j < kTermsAtOnce; ++j) {
      if (term + j < coded_) addCoded<Type>(wire_, sums, piece[j], element);
    }
    return good;
  }

  template <class Piece>
  MOE_LANES Piece loadPiece(int term, int at) const {
    const auto* from = reinterpret_cast<const Piece*>(row(term) + at);
    if (Wait::kTakes && term < landed_) return cuda_landing::load(from);
    return *from;
  }
  struct TermRow {
    const Sum& sum;
    int term;

    template <class Word>
    MOE_LANES Word load(int at) const {
      return sum.template loadPiece<Word>(term, at);
    }
  };
  MOE_LANES Coded load(int term, int element) const {
    return loadCoded(wire_, TermRow{*this, term}, element, part_.index);
  }

  // Waits for those words that are landing words, and empties their places, except for the row's float.
  template <int kTerms>
  MOE_LANES bool settle(Coded (&piece)[kTerms], int term, int element, bool there) const {
    bool good = true;
#pragma unroll
    for (int j = 0; j < kTerms; ++j) {
      if (there && term + j < landed_) good = settleOne(piece[j], term + j, element) && good;
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kTerms; ++j) {
      if (there && term + j < landed_) empty(term + j, element);
    }
    return good;
  }
  template <class Piece>
  MOE_LANES bool await(Piece& piece, int term, int at) const {
    const auto* place = reinterpret_cast<const Piece*>(row(term) + at);
    bool good = true;
    if constexpr (Wait::kTakes) good = hasLanded(piece) || wait_(place, &piece, first_ + term);
    piece = fromLanding(piece);
    return good;
  }
  MOE_LANES bool settleOne(Coded& piece, int term, int element) const {
    bool good = true;
    if (wire_.packsTwo()) {
      HalfQuad half{piece.codes.x, piece.codes.y};
      good = await(half, term, wire_.codesAt(element));
      piece.codes = {half.x, half.y, 0, 0};
    } else {
      good = await(piece.codes, term, wire_.codesAt(element));
    }
    if (wire_.scaleWords() != 0) good = await(piece.scale, term, wire_.scaleAt(element)) && good;
    if (wire_.hasFactor() || wire_.isLog()) {
      good = await(piece.more, term, moreAt(wire_, element, part_.index)) && good;
    }
    return good;
  }
  MOE_LANES void empty(int term, int element) const {
    auto* from = const_cast<std::uint8_t*>(row(term));
    if (wire_.packsTwo()) {
      cuda_landing::store(reinterpret_cast<HalfQuad*>(from + wire_.codesAt(element)),
                          HalfQuad{kNothingLanded, kNothingLanded});
    } else {
      cuda_landing::store(reinterpret_cast<Quad*>(from + wire_.codesAt(element)),
                          Quad{kNothingLanded, kNothingLanded, kNothingLanded, kNothingLanded});
    }
    if (wire_.isLog())
      cuda_landing::store(reinterpret_cast<std::uint32_t*>(from + wire_.fifthAt(element)), kNothingLanded);
    if (wire_.scaleWords() == 0 || element % (kWireUnit / wire_.scaleWords()) != 0) return;
    cuda_landing::store(reinterpret_cast<std::uint32_t*>(from + wire_.scaleAt(element)), kNothingLanded);
  }

  // Takes this part's copies of the row floats.
  MOE_LANES bool takeFactors() const {
    bool good = true;
    __syncwarp();
    for (int i = lane_; i < landed_ * kWireFactors; i += kLanes) {
      const int term = i / kWireFactors, copy = i % kWireFactors;
      if (!part_.takesFactor(copy)) continue;
      const int at = wire_.factorAt() + 4 * copy;
      std::uint32_t word = loadPiece<std::uint32_t>(term, at);
      good = await(word, term, at) && good;
      cuda_landing::store(reinterpret_cast<std::uint32_t*>(const_cast<std::uint8_t*>(row(term)) + at), kNothingLanded);
    }
    return good;
  }

  // ---- The term that is not coded yet

  MOE_LANES void loadOwn(Quad (&piece)[kQuads], int begin, int end) const {
    const int element = elementOf(begin);
    const auto* from = reinterpret_cast<const Quad*>(row(own_) + std::ptrdiff_t{element} * kElement);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) piece[q] = element < end ? from[q] : Quad{0, 0, 0, 0};
  }
  // `term`: the first of the terms in `piece`.
  template <int kTerms>
  MOE_LANES void codeOwn(Coded (&piece)[kTerms], const Quad (&own)[kQuads], int term, const WireFactor& factor) const {
    const Coded coded = codesOf(wire_, RowPiece::of(own), lane_, factor);
#pragma unroll
    for (int j = 0; j < kTerms; ++j) {
      if (term + j == own_) piece[j] = coded;
    }
  }
  MOE_LANES WireFactor findOwnFactor() const {
    std::uint32_t amax = 0;
#pragma unroll 1
    for (int begin = 0; begin < wire_.elements; begin += kStep) {
      Quad piece[kQuads];
      loadOwn(piece, begin, wire_.elements);
      amax = max(amax, RowPiece::of(piece).amax());
    }
    return WireFactor::of(blockMax(amax, kLanes));
  }

  // ---- Coding

  MOE_LANES Coder<MadeToLand<List>> coder() const {
    return {wire_, job_.out, lane_};
  }

  // Finds the factor from the whole row.
  MOE_LANES WireFactor findFactor() const {
    static_assert(!List::kCodes || !Wait::kTakes);
    std::uint32_t amax = 0;
#pragma unroll 1
    for (int begin = 0; begin < wire_.elements; begin += kStep) {
      Sums sums;
      addTerms(sums, begin, wire_.elements);
      amax = max(amax, pieceOf<Type>(sums).amax());
    }
    const WireFactor factor = WireFactor::of(blockMax(amax, kLanes));
    if (part_.index == 0) coder().storeFactor(factor);
    return factor;
  }

  const cuda_sums::Desk& desk_;
  const WireRow wire_;
  const WirePart part_;
  const SumJob job_;
  const int first_, coded_;
  const int own_, landed_, lane_;
  const Wait& wait_;
};

}  // namespace moe::cuda_wire
