// Sums of rows in a wire format (wire_row.h), and sums that are coded in one. reduceRows makes them for combines whose
// rows are coded. On a CPU, a lane makes them unit by unit.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "device/rows/row_jobs.h"
#include "device/rows/wire_row.h"

namespace moe {

// For reduceRows: sums that are divided into parts. part(i) is the range of elements that job i makes; job(i).out and
// term(i, t) are whole rows of type rowType(). job(i) has as many bytes as a row of the row type, or 0 if there is
// nothing to do. With kCodes the result is coded as a row of wire(); else it is rounded to the row type. With kReads
// the first coded(i) terms are rows of wire(). For NVFP4, a row has at most kWireFactors parts, and a coded sum has no
// landed terms.
template <class List>
concept WireList = SumList<List> && requires(const List list, int i) {
  { list.wire() } -> std::same_as<WireRow>;
  { list.part(i) } -> std::same_as<WirePart>;
  requires List::kCodes || List::kReads;
};

// Lists whose sums have few terms. A policy may then make two units of such a sum at the same time.
template <class List>
concept InPairs = requires {
  requires List::kPairs;
};

#if !defined(__CUDACC__)

// One sum of a list, on one lane. `Memory` is how the machine reads and writes rows:
//   load(term, to, from, bytes)   reads plain bytes, or takes landing words; false if they did not arrive
//   look(term, to, from, bytes)   the same, but leaves landing words in place
//   store(to, from, bytes)        writes the result
template <class Type, WireList List, class Memory>
class WireSum {
 public:
  WireSum(const List& list, int i, const Memory& memory)
      : list_(list), i_(i), memory_(memory), job_(list.job(i)), wire_(list.wire()), part_(list.part(i)) {}

  // Makes the units first, first + step, ... of the part. False: a row did not arrive.
  bool make(int first, int step) const {
    if (job_.bytes == 0) return true;
    const int units = (part_.end - part_.begin) / kWireUnit;
    if constexpr (List::kCodes) {
      WireFactor factor{};
      if (wire_.hasFactor() && first < units && !findFactor(&factor)) return false;
      if (wire_.hasFactor() && first == 0 && part_.index == 0) storeFactor(factor.factor);
      return forUnits(first, step, [&](int begin, const Sums& sums) { storeCodes(begin, sums, factor); });
    }
    return forUnits(first, step, [&](int begin, const Sums& sums) { storeRow(begin, sums); });
  }

  // Takes the floats of landed rows that belong to this part. One lane calls it when all units of the part are made.
  bool takeFactors() const {
    if constexpr (List::kReads && TakesLanded<List>) {
      if (job_.bytes == 0 || !wire_.hasFactor()) return true;
      for (int term = 0; term < list_.landed(i_); ++term) {
        for (int copy = 0; copy < kWireFactors; ++copy) {
          std::uint32_t word;
          if (part_.takesFactor(copy) && !memory_.load(term, &word, factorOf(term, copy), sizeof word)) return false;
        }
      }
    }
    return true;
  }

 private:
  using Sums = std::array<float, kWireUnit>;
  static constexpr int kElement = Type::kPerWord == 2 ? 2 : 4;

  template <class Use>
  bool forUnits(int first, int step, Use use) const {
    Sums sums;
    for (int begin = part_.begin + first * kWireUnit; begin < part_.end; begin += step * kWireUnit) {
      if (!sumUnit(begin, sums)) return false;
      use(begin, sums);
    }
    return true;
  }

  bool sumUnit(int begin, Sums& sums) const {
    sums.fill(0.0f);
    for (int term = 0; term < job_.terms; ++term) {
      if (!addTerm(term, begin, sums)) return false;
    }
    return true;
  }

  bool addTerm(int term, int begin, Sums& sums) const {
    if constexpr (List::kReads) {
      if (term < list_.coded(i_)) return addCoded(term, begin, sums);
    }
    alignas(Quad) std::array<std::conditional_t<kElement == 2, std::uint16_t, std::uint32_t>, kWireUnit> row;
    if (!memory_.load(term, row.data(), list_.term(i_, term) + std::ptrdiff_t{begin} * kElement, sizeof row))
      return false;
    float weight = 1.0f;
    if constexpr (Weighted<List>) weight = list_.weight(i_, term);
    for (std::size_t e = 0; e < sums.size(); ++e) {
      const float value = Type::toFloat(row[e]);
      sums[e] = addRounded(sums[e], Weighted<List> ? multiplyRounded(value, weight) : value);
    }
    return true;
  }

  bool addCoded(int term, int begin, Sums& sums) const {
    const std::uint8_t* row = list_.term(i_, term);
    if (wire_.isLog()) return addLog(term, begin, sums);
    std::array<std::uint32_t, kWireUnit / 4> codes;
    std::array<std::uint32_t, 2> scales{};
    std::uint32_t factor = 0;
    const int words = wire_.packsTwo() ? kWireUnit / 8 : kWireUnit / 4;
    if (!memory_.load(term, codes.data(), row + wire_.codesAt(begin), static_cast<std::uint32_t>(words) * 4))
      return false;
    const auto scaleBytes = static_cast<std::uint32_t>(wire_.scaleWords() * 4);
    if (scaleBytes > 0 && !memory_.load(term, scales.data(), row + wire_.scaleAt(begin), scaleBytes)) return false;
    if (wire_.hasFactor() && !memory_.look(term, &factor, factorOf(term, part_.index), sizeof factor)) return false;
    for (int piece = 0; piece < kWireUnitPieces; ++piece) {
      const std::uint32_t word = scales[wire_.packsTwo() && piece * kWirePiece >= kWireUnit / 2 ? 1 : 0];
      addPiece(codes.data(), piece, wireScale(wire_, piece * kWirePiece, word, factor), sums);
    }
    return true;
  }

  bool addLog(int term, int begin, Sums& sums) const {
    const std::uint8_t* row = list_.term(i_, term);
    std::array<Quad, kWireUnitPieces> codes;
    std::array<std::uint32_t, kWireUnitPieces> fifths;
    std::uint32_t word = 0;
    if (!memory_.load(term, codes.data(), row + wire_.codesAt(begin), sizeof codes)) return false;
    if (!memory_.load(term, fifths.data(), row + wire_.fifthAt(begin), sizeof fifths)) return false;
    if (!memory_.load(term, &word, row + wire_.scaleAt(begin), sizeof word)) return false;
    const LogGroup group = LogGroup::of(word);
    for (std::size_t at = 0; at < codes.size(); ++at) {
      const LogPiece piece{codes[at].x, codes[at].y, codes[at].z, codes[at].w, fifths[at]};
      for (int e = 0; e < kWirePiece; ++e) {
        float& sum = sums[at * kWirePiece + static_cast<std::size_t>(e)];
        sum = addRounded(sum, group.valueOf(piece.fieldAt(e)));
      }
    }
    return true;
  }

  void addPiece(const std::uint32_t* codes, int piece, float scale, Sums& sums) const {
    for (int at = piece * kWirePiece; at < (piece + 1) * kWirePiece; ++at) {
      const float value = wire_.packsTwo() ? wireE2m1(codes[at / 8], at % 8, scale)
                                           : dequantise(codes[at / 4] >> 8 * (at % 4) & 0xffu, scale);
      float& sum = sums[static_cast<std::size_t>(at)];
      sum = addRounded(sum, value);
    }
  }

  const std::uint8_t* factorOf(int term, int copy) const {
    return list_.term(i_, term) + wire_.factorAt() + std::ptrdiff_t{4} * copy;
  }

  // Finds the factor, for which it reads the whole row.
  bool findFactor(WireFactor* factor) const {
    static_assert(!List::kCodes || !TakesLanded<List>);
    std::uint32_t amax = 0;
    Sums sums;
    for (int begin = 0; begin < wire_.elements; begin += kWireUnit) {
      if (!sumUnit(begin, sums)) return false;
      for (int piece = 0; piece < kWireUnitPieces; ++piece) {
        amax = std::max(amax, WirePiece::of(sums.data() + std::ptrdiff_t{piece} * kWirePiece).amax());
      }
    }
    *factor = WireFactor::of(amax);
    return true;
  }

  void storeFactor(float factor) const {
    const std::array<float, kWireFactors> copies{factor, factor, factor, factor};
    memory_.store(job_.out + wire_.factorAt(), copies.data(), sizeof copies);
  }

  void storeLog(int begin, const std::array<WirePiece, kWireUnitPieces>& pieces) const {
    std::uint32_t amax = 0, amin = kInfinityBits;
    for (const WirePiece& piece : pieces) {
      amax = std::max(amax, piece.amaxOrNan());
      amin = std::min(amin, piece.amin());
    }
    const std::uint32_t word = logWord(amax, amin);
    const LogCoder coder = LogCoder::of(LogGroup::of(word));
    std::array<Quad, kWireUnitPieces> codes;
    std::array<std::uint32_t, kWireUnitPieces> fifths;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const LogPiece coded = pieces[i].codesLog(coder);
      codes[i] = {coded.word[0], coded.word[1], coded.word[2], coded.word[3]};
      fifths[i] = coded.word[4];
    }
    memory_.store(job_.out + wire_.codesAt(begin), codes.data(), sizeof codes);
    memory_.store(job_.out + wire_.fifthAt(begin), fifths.data(), sizeof fifths);
    memory_.store(job_.out + wire_.scaleAt(begin), &word, sizeof word);
  }

  void storeCodes(int begin, const Sums& sums, const WireFactor& factor) const {
    std::array<WirePiece, kWireUnitPieces> pieces;
    std::uint32_t amax = 0;
    for (int i = 0; i < kWireUnitPieces; ++i) {
      auto& piece = pieces[static_cast<std::size_t>(i)];
      piece = WirePiece::of(sums.data() + std::ptrdiff_t{i} * kWirePiece);
      amax = std::max(amax, piece.amax());
    }
    if (wire_.isLog()) return storeLog(begin, pieces);
    const Fp8Scale scale = wire_.type == kWireFp8Blocks ? wireFp8Scale(amax) : Fp8Scale{1.0f, 1.0f};
    std::array<std::uint32_t, 2> words{floatToBits(scale.scale), 0};
    if (wire_.packsTwo()) words = storeE2m1(begin, pieces, factor);
    if (!wire_.packsTwo()) {
      std::array<Quad, kWireUnitPieces> codes;
      std::transform(pieces.begin(), pieces.end(), codes.begin(),
                     [&](const auto& p) { return p.codes(scale.inverse); });
      memory_.store(job_.out + wire_.codesAt(begin), codes.data(), sizeof codes);
    }
    const auto bytes = static_cast<std::uint32_t>(wire_.scaleWords() * 4);
    if (bytes > 0) memory_.store(job_.out + wire_.scaleAt(begin), words.data(), bytes);
  }

  // Stores the codes and returns the words of the scales.
  std::array<std::uint32_t, 2> storeE2m1(int begin, const std::array<WirePiece, kWireUnitPieces>& pieces,
                                         const WireFactor& factor) const {
    std::array<std::uint32_t, 2> words{};
    std::array<HalfQuad, kWireUnitPieces> codes;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const ByteScale scale = nvfp4Scale(bitsToFloat(pieces[i].amaxOrNan()), factor.global);
      words[i / 4] |= scale.byte << 8 * (i % 4);
      codes[i] = pieces[i].codesE2m1(scale.inverse);
    }
    memory_.store(job_.out + wire_.codesAt(begin), codes.data(), sizeof codes);
    return words;
  }

  void storeRow(int begin, const Sums& sums) const {
    std::array<std::conditional_t<kElement == 2, std::uint16_t, std::uint32_t>, kWireUnit> row;
    for (std::size_t e = 0; e < sums.size(); ++e)
      row[e] = static_cast<typename decltype(row)::value_type>(Type::fromFloat(sums[e]));
    memory_.store(job_.out + std::ptrdiff_t{begin} * kElement, row.data(), sizeof row);
  }

  const List& list_;
  int i_;
  const Memory& memory_;
  SumJob job_;
  WireRow wire_;
  WirePart part_;
};

#endif

}  // namespace moe
