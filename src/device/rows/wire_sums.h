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
// landed terms. weighs(), of Weighted lists: false if all weights are 1.
template <class List>
concept WireList = SumList<List> && requires(const List list, int i) {
  { list.wire() } -> std::same_as<WireRow>;
  { list.part(i) } -> std::same_as<WirePart>;
  requires List::kCodes || List::kReads;
};

// Lists with kReads of which one term of each sum may not be coded yet: isOwn(i, term). It is a row of the row type,
// and counts as if it had been coded. Policies whose warps are blocks take no such lists.
template <class List>
concept OwnsRows = WireList<List> && requires(const List list, int i) {
  { list.isOwn(i, i) } -> std::same_as<bool>;
};

#if !defined(__CUDACC__)

// The words of a unit on the wire: codes, fifth words of LogFMT-10, scales.
struct WireUnit {
  alignas(Quad) std::array<std::uint32_t, kWireUnit / 4> codes;
  std::array<std::uint32_t, kWireUnitPieces> fifths;
  std::array<std::uint32_t, 2> scales;

  static int codeBytes(const WireRow& wire) { return wire.packsTwo() ? kWireUnit / 2 : kWireUnit; }
  void put(std::size_t piece, const Quad& words) { std::memcpy(codes.data() + 4 * piece, &words, sizeof words); }
};

// One sum of a list, on one lane. `Memory` is how the machine reads and writes rows:
//   load(term, to, from, bytes)   reads plain bytes, or takes landing words; false if they did not arrive
//   look(term, to, from, bytes)   the same, but leaves landing words in place
//   store(to, from, bytes)        writes the result
template <class Type, WireList List, class Memory>
class WireSum {
 public:
  WireSum(const List& list, int i, const Memory& memory)
      : list_(list), i_(i), memory_(memory), job_(list.job(i)), wire_(list.wire()), part_(list.part(i)) {
    if constexpr (OwnsRows<List>) findOwn();
  }

  // Makes the units first, first + step, ... of the part. False: a row did not arrive.
  bool make(int first, int step) const {
    if (job_.bytes == 0) return true;
    const int units = (part_.end - part_.begin) / kWireUnit;
    if constexpr (List::kCodes) {
      WireFactor factor{};
      static_assert(!TakesLanded<List>);
      const auto addTo = [&](int begin, Sums& sums) { return addTerms(begin, sums); };
      if (wire_.hasFactor() && first < units && !findFactor(addTo, &factor)) return false;
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
      sums.fill(0.0f);
      if (!addTerms(begin, sums)) return false;
      use(begin, sums);
    }
    return true;
  }

  bool addTerms(int begin, Sums& sums) const {
    for (int term = 0; term < job_.terms; ++term) {
      if (!addTerm(term, begin, sums)) return false;
    }
    return true;
  }

  bool addTerm(int term, int begin, Sums& sums) const {
    if constexpr (List::kReads) {
      if (term < list_.coded(i_)) return term == own_ ? addOwn(begin, sums) : addCoded(term, begin, sums);
    }
    return addRow(term, begin, sums);
  }

  bool addRow(int term, int begin, Sums& sums) const {
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
    WireUnit unit{};
    std::uint32_t factor = 0;
    const auto load = [&](auto& words, int at, int bytes) {
      return bytes == 0 || memory_.load(term, words.data(), row + at, static_cast<std::uint32_t>(bytes));
    };
    if (!load(unit.codes, wire_.codesAt(begin), unit.codeBytes(wire_))) return false;
    if (wire_.isLog() && !load(unit.fifths, wire_.fifthAt(begin), sizeof unit.fifths)) return false;
    if (!load(unit.scales, wire_.scaleAt(begin), wire_.scaleWords() * 4)) return false;
    if (wire_.hasFactor() && !memory_.look(term, &factor, factorOf(term, part_.index), sizeof factor)) return false;
    addUnit(unit, factor, sums);
    return true;
  }

  // ---- The term that is not coded yet. Its row is this rank's, so it need not be awaited.

  bool addOwn(int begin, Sums& sums) const {
    Sums own{};
    if (!addRow(own_, begin, own)) return false;
    addUnit(codesOf(own, ownFactor_), floatToBits(ownFactor_.factor), sums);
    return true;
  }
  void findOwn() {
    for (int term = 0; job_.bytes > 0 && term < job_.terms; ++term) {
      if (list_.isOwn(i_, term)) own_ = term;
    }
    if (own_ < 0 || !wire_.hasFactor()) return;
    findFactor([&](int begin, Sums& sums) { return addRow(own_, begin, sums); }, &ownFactor_);
  }

  void addUnit(const WireUnit& unit, std::uint32_t factor, Sums& sums) const {
    if (wire_.isLog()) return addLog(unit, sums);
    for (int at = 0; at < kWireUnit; ++at) {
      const int piece = at / kWirePiece;
      const std::uint32_t word = unit.scales[wire_.packsTwo() && at >= kWireUnit / 2 ? 1 : 0];
      const float scale = wireScale(wire_, piece * kWirePiece, word, factor);
      const std::size_t i = static_cast<std::size_t>(at);
      const float value = wire_.packsTwo() ? wireE2m1(unit.codes[i / 8], at % 8, scale)
                                           : dequantise(unit.codes[i / 4] >> 8 * (at % 4) & 0xffu, scale);
      sums[i] = addRounded(sums[i], value);
    }
  }
  static void addLog(const WireUnit& unit, Sums& sums) {
    const LogGroup group = LogGroup::of(unit.scales[0]);
    for (std::size_t at = 0; at < unit.fifths.size(); ++at) {
      const std::uint32_t* codes = unit.codes.data() + 4 * at;
      const LogPiece piece{codes[0], codes[1], codes[2], codes[3], unit.fifths[at]};
      for (int e = 0; e < kWirePiece; ++e) {
        float& sum = sums[at * kWirePiece + static_cast<std::size_t>(e)];
        sum = addRounded(sum, group.valueOf(piece.fieldAt(e)));
      }
    }
  }

  const std::uint8_t* factorOf(int term, int copy) const {
    return list_.term(i_, term) + wire_.factorAt() + std::ptrdiff_t{4} * copy;
  }

  // Finds the factor of a row, for which it sums the whole row: addTo(begin, sums) adds a unit. False: a row did not
  // arrive.
  template <class AddTo>
  bool findFactor(AddTo addTo, WireFactor* factor) const {
    std::uint32_t amax = 0;
    for (int begin = 0; begin < wire_.elements; begin += kWireUnit) {
      Sums sums{};
      if (!addTo(begin, sums)) return false;
      for (const WirePiece& piece : piecesOf(sums)) amax = std::max(amax, piece.amax());
    }
    *factor = WireFactor::of(amax);
    return true;
  }

  void storeFactor(float factor) const {
    const std::array<float, kWireFactors> copies{factor, factor, factor, factor};
    memory_.store(job_.out + wire_.factorAt(), copies.data(), sizeof copies);
  }

  void storeCodes(int begin, const Sums& sums, const WireFactor& factor) const {
    const WireUnit unit = codesOf(sums, factor);
    const auto store = [&](const auto& words, int at, int bytes) {
      if (bytes > 0) memory_.store(job_.out + at, words.data(), static_cast<std::uint32_t>(bytes));
    };
    store(unit.codes, wire_.codesAt(begin), unit.codeBytes(wire_));
    if (wire_.isLog()) store(unit.fifths, wire_.fifthAt(begin), sizeof unit.fifths);
    store(unit.scales, wire_.scaleAt(begin), wire_.scaleWords() * 4);
  }

  // ---- Codes of a unit

  using Pieces = std::array<WirePiece, kWireUnitPieces>;
  static Pieces piecesOf(const Sums& sums) {
    Pieces pieces;
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = WirePiece::of(sums.data() + i * kWirePiece);
    return pieces;
  }
  WireUnit codesOf(const Sums& sums, const WireFactor& factor) const {
    const Pieces pieces = piecesOf(sums);
    return wire_.packsTwo() ? e2m1Of(pieces, factor) : wire_.isLog() ? logOf(pieces) : e4m3Of(pieces);
  }
  WireUnit e4m3Of(const Pieces& pieces) const {
    std::uint32_t amax = 0;
    for (const WirePiece& piece : pieces) amax = std::max(amax, piece.amax());
    const Fp8Scale scale = wire_.type == kWireFp8Blocks ? wireFp8Scale(amax) : Fp8Scale{1.0f, 1.0f};
    WireUnit unit{};
    for (std::size_t i = 0; i < pieces.size(); ++i) unit.put(i, pieces[i].codes(scale.inverse));
    unit.scales[0] = floatToBits(scale.scale);
    return unit;
  }
  static WireUnit e2m1Of(const Pieces& pieces, const WireFactor& factor) {
    WireUnit unit{};
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const ByteScale scale = nvfp4Scale(bitsToFloat(pieces[i].amaxOrNan()), factor.global);
      unit.scales[i / 4] |= scale.byte << 8 * (i % 4);
      const HalfQuad codes = pieces[i].codesE2m1(scale.inverse);
      unit.codes[2 * i] = codes.x;
      unit.codes[2 * i + 1] = codes.y;
    }
    return unit;
  }
  static WireUnit logOf(const Pieces& pieces) {
    std::uint32_t amax = 0, amin = kInfinityBits;
    for (const WirePiece& piece : pieces) {
      amax = std::max(amax, piece.amaxOrNan());
      amin = std::min(amin, piece.amin());
    }
    WireUnit unit{};
    unit.scales[0] = logWord(amax, amin);
    const LogCoder coder = LogCoder::of(LogGroup::of(unit.scales[0]));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const LogPiece coded = pieces[i].codesLog(coder);
      unit.put(i, {coded.word[0], coded.word[1], coded.word[2], coded.word[3]});
      unit.fifths[i] = coded.word[4];
    }
    return unit;
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
  int own_ = -1;
  WireFactor ownFactor_{};
};

#endif

}  // namespace moe
