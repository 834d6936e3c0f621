// How a block makes sums in a wire format (rows/wire_sums.h), with a lane per thread. A thread has pieces of 16
// elements. It loads the pieces of four rows at the same time, with all their words, so that a row of few pieces takes
// one flight of loads. In NVFP4 it keeps the sums of its piece until the block knows the row's float. Rows with more
// than a piece for each thread are summed twice.
//
// Landing words are awaited together. Each thread empties its codes, and the first thread that shares a scale's word
// empties that word. The row's float stays until all threads have read it.
#pragma once

#include "device/policy/cuda/block_sums.h"
#include "device/policy/cuda/wire_piece.h"

namespace moe::cuda_wire {

// The words of a term that a thread needs, as they lie in memory, and which of them there are.
class CodedWords {
 public:
  // `factor`: which copy of the row's float is read.
  MOE_LANES CodedWords(const WireRow& wire, int element, int factor)
      : codesAt_(wire.codesAt(element)),
        scaleAt_(wire.scaleAt(element)),
        moreAt_(wire.isLog() ? wire.fifthAt(element) : wire.factorAt() + 4 * factor),
        packsTwo_(wire.packsTwo()),
        scaled_(wire.scaleWords() != 0),
        more_(wire.isLog() || wire.hasFactor()),
        takesMore_(wire.isLog()),
        leads_(scaled_ && element % (kWireUnit / wire.scaleWords()) == 0) {}

  template <bool kLands>
  MOE_LANES void load(Coded* piece, const std::uint8_t* row) const {
    if (packsTwo_) {
      const HalfQuad half = word<kLands, HalfQuad>(row + codesAt_);
      piece->codes = {half.x, half.y, half.x, half.y};  // so that all words of a piece that has landed have landed
    } else {
      piece->codes = word<kLands, Quad>(row + codesAt_);
    }
    if (scaled_) piece->scale = word<kLands, std::uint32_t>(row + scaleAt_);
    if (more_) piece->more = word<kLands, std::uint32_t>(row + moreAt_);
  }
  MOE_LANES bool haveLanded(const Coded& piece) const {
    return hasLanded(piece.codes) && (!scaled_ || hasLanded(piece.scale)) && (!more_ || hasLanded(piece.more));
  }
  MOE_LANES void decode(Coded* piece) const {
    *piece = {fromLanding(piece->codes), fromLanding(piece->scale), fromLanding(piece->more)};
  }
  // Empties this thread's words, when all threads that share them have read them.
  MOE_LANES void empty(std::uint8_t* row) const {
    if (packsTwo_) {
      cuda_landing::store(reinterpret_cast<HalfQuad*>(row + codesAt_), HalfQuad{});
    } else {
      cuda_landing::store(reinterpret_cast<Quad*>(row + codesAt_), Quad{});
    }
    if (takesMore_) cuda_landing::store(reinterpret_cast<std::uint32_t*>(row + moreAt_), kNothingLanded);
    if (leads_) cuda_landing::store(reinterpret_cast<std::uint32_t*>(row + scaleAt_), kNothingLanded);
  }

 private:
  static_assert(kNothingLanded == 0);

  template <bool kLands, class Word>
  static MOE_LANES Word word(const std::uint8_t* from) {
    const auto* place = reinterpret_cast<const Word*>(from);
    if constexpr (kLands) return cuda_landing::load(place);
    return *place;
  }

  int codesAt_, scaleAt_, moreAt_;
  bool packsTwo_, scaled_, more_, takesMore_, leads_;
};

// `kWire`: the format of all rows of this kernel; kWireRow: each list says its own. Code for other formats would lie in
// the way.
template <int kWire, class Type, WireList List, class Desk, class Terms>
class BlockSum {
  static constexpr int kQuads = kPieceQuads<Type>, kElement = kElementBytes<Type>;
  static constexpr int kTermsAtOnce = 4, kRowsAtOnce = kElement == 2 ? 4 : 2;
  using Sums = PieceSums<Type>;

 public:
  // Sum `i` of the list, whose rows the desk has. `landed`: which of them are landing words (block_sums.h).
  MOE_LANES BlockSum(const List& list, int i, const Desk& desk, const SumJob& job, const Terms& landed)
      : desk_(desk),
        wire_{kWire == kWireRow ? list.wire().type : kWire, list.wire().elements},
        part_(list.part(i)),
        job_(job),
        coded_(codedOf(list, i)),
        landed_(landed) {}

  // False: a row did not arrive. All threads of the block call it.
  MOE_LANES bool make() const {
    if (job_.bytes == 0) return true;
    if constexpr (List::kCodes) {
      if (wire_.hasFactor()) return makeWithFactor();
    }
    bool good = true;
#pragma unroll 1
    for (int begin = part_.begin; begin < part_.end; begin += span()) {
      Sums sums;
      good = addTerms(sums, begin, part_.end) && good;
      store(sums, begin + own(), part_.end, {});
    }
    if constexpr (Terms::kTakes) {
      if (wire_.hasFactor()) good = takeFactors() && good;
    }
    return good;
  }

 private:
  static MOE_LANES int codedOf(const List& list, int i) {
    if constexpr (List::kReads) return list.coded(i);
    return 0;
  }
  static MOE_LANES int thread() {
    return static_cast<int>(threadIdx.x);
  }
  // This thread's first element of a span, and the elements of a span.
  static MOE_LANES int own() {
    return thread() * kWirePiece;
  }
  static MOE_LANES int span() {
    return static_cast<int>(blockDim.x) * kWirePiece;
  }

  // ---- The sums

  // Adds up this thread's piece of the span from `begin` on, if it is below `end`.
  MOE_LANES bool addTerms(Sums& sums, int begin, int end) const {
    const int element = begin + own();
    const bool there = element < end;
    bool good = true;
    if constexpr (List::kReads) {
#pragma unroll 1
      for (int term = 0; term < coded_; term += kTermsAtOnce) good = addCodes(sums, term, element, there) && good;
    }
#pragma unroll 1
    for (int term = coded_; term < job_.terms; term += kRowsAtOnce) addRows(sums, term, element, there);
    return good;
  }

  MOE_LANES void addRows(Sums& sums, int term, int element, bool there) const {
    Quad piece[kRowsAtOnce][kQuads];
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const bool loads = there && term + j < job_.terms;
      const auto* from =
          reinterpret_cast<const Quad*>(desk_.rows[loads ? term + j : term] + std::ptrdiff_t{element} * kElement);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) piece[j][q] = loads ? from[q] : Quad{0, 0, 0, 0};
    }
#pragma unroll
    for (int j = 0; j < kRowsAtOnce; ++j) {
      const float weight = Weighted<List> && term + j < job_.terms ? desk_.weight(term + j) : 1.0f;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) sums[q].template add<Weighted<List>>(piece[j][q], weight);
    }
  }

  MOE_LANES bool addCodes(Sums& sums, int term, int element, bool there) const {
    const CodedWords words(wire_, there ? element : 0, part_.index);
    Coded piece[kTermsAtOnce];
    const auto each = [&](auto body) {
#pragma unroll
      for (int j = 0; j < kTermsAtOnce; ++j) {
        if (there && term + j < coded_) body(&piece[j], desk_.rows[term + j], term + j);
      }
    };
    bool good = true;
    if constexpr (Terms::kTakes) {
      good = takeWords(words, each);
    } else {
      each([&](Coded* to, const std::uint8_t* row, int) { words.template load<false>(to, row); });
    }
    each([&](Coded* from, const std::uint8_t*, int) { addCoded<Type>(wire_, sums, *from, element); });
    return good;
  }

  // Waits until all words of these terms are there, and empties those that are landing words.
  template <class Each>
  MOE_LANES bool takeWords(const CodedWords& words, Each each) const {
    const auto lands = [&](int term) { return term < landed_.count; };
    each([&](Coded* to, const std::uint8_t* row, int term) {
      *to = {};
      lands(term) ? words.template load<true>(to, row) : words.template load<false>(to, row);
    });
    const bool good = await(words, each);
    each([&](Coded* from, const std::uint8_t*, int term) {
      if (lands(term)) words.decode(from);
    });
    __syncwarp();  // threads that share a word are in one CUDA warp
    each([&](Coded*, const std::uint8_t* row, int term) {
      if (lands(term)) words.empty(const_cast<std::uint8_t*>(row));
    });
    return good;
  }
  template <class Each>
  MOE_LANES bool await(const CodedWords& words, Each each) const {
    auto goesOn = landed_.pauseOf();
    for (;;) {
      int late = -1;
      each([&](const Coded* piece, const std::uint8_t*, int term) {
        if (term < landed_.count && !words.haveLanded(*piece)) late = term;
      });
      if (late < 0) return true;
      if (!goesOn(late)) return false;
      each([&](Coded* piece, const std::uint8_t* row, int term) {
        if (term < landed_.count && !words.haveLanded(*piece)) words.template load<true>(piece, row);
      });
    }
  }

  // Takes this part's copies of the row floats. Every thread has read its copy of them.
  MOE_LANES bool takeFactors() const {
    __syncthreads();
    bool good = true;
    for (int i = thread(); i < landed_.count * kWireFactors; i += static_cast<int>(blockDim.x)) {
      const int term = i / kWireFactors, copy = i % kWireFactors;
      if (!part_.takesFactor(copy)) continue;
      const std::uint8_t* row = desk_.rows[term];
      auto* word = reinterpret_cast<std::uint32_t*>(const_cast<std::uint8_t*>(row) + wire_.factorAt() + 4 * copy);
      auto goesOn = landed_.pauseOf();
      while (good && !hasLanded(cuda_landing::load(word))) good = goesOn(term);
      cuda_landing::store(word, kNothingLanded);
    }
    return good;
  }

  // ---- The result

  MOE_LANES void store(const Sums& sums, int element, int end, const WireFactor& factor) const {
    const bool there = element >= part_.begin && element < end;
    if constexpr (List::kCodes) {
      coder().store(pieceOf<Type>(sums), element, there, factor);
    } else if (there) {
      auto* out = reinterpret_cast<Quad*>(job_.out + std::ptrdiff_t{element} * kElement);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) out[q] = sums[q].rounded();
    }
  }
  MOE_LANES Coder<MadeToLand<List>> coder() const {
    return {wire_, job_.out, thread()};
  }

  // ---- Rows that have a float, which follows from all their elements. Only this part of the row is stored.

  // All turns sum. The same turns again store, and need no sums again if there is one.
  MOE_LANES bool makeWithFactor() const {
    static_assert(!List::kCodes || !Terms::kTakes);
    const int turns = (wire_.elements + span() - 1) / span();
    Sums sums;
    WireFactor factor{};
    std::uint32_t amax = 0;
#pragma unroll 1
    for (int turn = 0; turn < 2 * turns; ++turn) {
      const bool stores = turn >= turns;
      const int begin = (stores ? turn - turns : turn) * span();
      if (turn == turns) factor = factorOf(amax);
      if (!stores || turns > 1) {
#pragma unroll
        for (int q = 0; q < kQuads; ++q) sums[q] = {};
        addTerms(sums, begin, wire_.elements);
      }
      if (stores) {
        store(sums, begin + own(), part_.end, factor);
      } else {
        const std::uint32_t here = pieceOf<Type>(sums).amax();
        amax = here > amax ? here : amax;
      }
    }
    return true;
  }
  // `amax`: this thread's. The next row's threads meet before they come here.
  MOE_LANES WireFactor factorOf(std::uint32_t amax) const {
    __shared__ std::uint32_t largest[kLanes];
    const std::uint32_t ofWarp = blockMax(amax, kLanes);
    if (thread() % kLanes == 0) largest[thread() / kLanes] = ofWarp;
    __syncthreads();
    const int lane = thread() % kLanes, warps = static_cast<int>(blockDim.x) / kLanes;
    const WireFactor factor = WireFactor::of(blockMax(lane < warps ? largest[lane] : 0, kLanes));
    if (part_.index == 0) coder().storeFactor(factor);
    return factor;
  }

  const Desk& desk_;
  const WireRow wire_;
  const WirePart part_;
  const SumJob job_;
  const int coded_;
  const Terms& landed_;
};

}  // namespace moe::cuda_wire
