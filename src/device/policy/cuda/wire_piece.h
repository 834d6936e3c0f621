// What a lane of a CUDA warp does with a piece of 16 elements of a row in a wire format (rows/wire_row.h): it adds
// coded elements to sums, and codes sums. A warp has 512 elements at a time. The lanes of a block find its largest
// magnitude by shuffles, and the block's first lane stores the scale.
#pragma once

#include "device/policy/cuda/landing.h"
#include "device/rows/wire_sums.h"

namespace moe::cuda_wire {

// Whether a kernel for this format takes rows that are not coded yet. Others have no registers left. In LogFMT-10
// coding takes so many instructions that it would slow down the sums.
template <int kWire, class List>
inline constexpr bool kOwnsRows = OwnsRows<List>&& kWire != kWireRow&& kWire != kWireLogfmt10;

inline constexpr unsigned kAll = 0xffffffffu;
inline constexpr int kLanes = 32, kStep = kLanes * kWirePiece;

// The sums of a piece's elements, and the size of an element in the row type.
template <class Type>
inline constexpr int kPieceQuads = 4 / Type::kPerWord;
template <class Type>
inline constexpr int kElementBytes = 4 / Type::kPerWord;
template <class Type>
using PieceSums = Accumulator<Type>[kPieceQuads<Type>];

// The words that a lane needs of a coded row.
struct Coded {
  Quad codes;  // E2M1 uses the first half
  std::uint32_t scale;
  std::uint32_t more;  // NVFP4: the row's float; LogFMT-10: the fifth word
};

template <class Type>
MOE_LANES float& elementOf(PieceSums<Type>& sums, int e) {
  return sums[e / Accumulator<Type>::kFloats].sum[e % Accumulator<Type>::kFloats];
}
template <class Type>
MOE_LANES void addElement(PieceSums<Type>& sums, int e, float value) {
  float& sum = elementOf<Type>(sums, e);
  sum = addRounded(sum, value);
}
template <class Type>
MOE_LANES void addLog(PieceSums<Type>& sums, const Coded& piece) {
  const LogGroup group = LogGroup::of(piece.scale);
  const LogPiece fields{{piece.codes.x, piece.codes.y, piece.codes.z, piece.codes.w, piece.more}};
#pragma unroll
  for (int e = 0; e < kWirePiece; ++e) addElement<Type>(sums, e, group.valueOf(fields.fieldAt(e)));
}
// A coded row that is plain memory.
struct PlainRow {
  const std::uint8_t* row;

  template <class Word>
  MOE_LANES Word load(int at) const {
    return *reinterpret_cast<const Word*>(row + at);
  }
};
// Where the further word beside codes and scale is, if the format has one: LogFMT-10's fifth word, or the copy `part`
// of the row's float.
MOE_LANES int moreAt(const WireRow& wire, int element, int part) {
  return wire.isLog() ? wire.fifthAt(element) : wire.factorAt() + 4 * part;
}
// The words of a piece. `row`: how its words are loaded, load<Word>(at).
template <class Row>
MOE_LANES Coded loadCoded(const WireRow& wire, const Row& row, int element, int part) {
  Coded piece{};
  if (wire.packsTwo()) {
    const auto half = row.template load<HalfQuad>(wire.codesAt(element));
    piece.codes = {half.x, half.y, 0, 0};
  } else {
    piece.codes = row.template load<Quad>(wire.codesAt(element));
  }
  if (wire.scaleWords() != 0) piece.scale = row.template load<std::uint32_t>(wire.scaleAt(element));
  if (wire.hasFactor() || wire.isLog()) piece.more = row.template load<std::uint32_t>(moreAt(wire, element, part));
  return piece;
}

template <bool kScaled, class Type>
MOE_LANES void addE4m3(PieceSums<Type>& sums, const Quad& codes, float scale) {
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const fp8::Four floats = fp8::toFloats(words[word]);
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float value = floats.value[e];
      addElement<Type>(sums, 4 * word + e, kScaled ? multiplyRounded(value, scale) : value);
    }
  }
}
// Adds a piece whose first element is `element`.
template <class Type>
MOE_LANES void addCoded(const WireRow& wire, PieceSums<Type>& sums, const Coded& piece, int element) {
  if (wire.isLog()) return addLog<Type>(sums, piece);
  if (wire.type == kWireFp8) return addE4m3<false, Type>(sums, piece.codes, 1.0f);
  const float scale = wireScale(wire, element, piece.scale, piece.more);
  if (!wire.packsTwo()) return addE4m3<true, Type>(sums, piece.codes, scale);
  const std::uint32_t words[2] = {piece.codes.x, piece.codes.y};
#pragma unroll
  for (int word = 0; word < 2; ++word) {
    const E2m1Floats floats = wireE2m1Floats(words[word]);
#pragma unroll
    for (int e = 0; e < 8; ++e) addElement<Type>(sums, 8 * word + e, multiplyRounded(floats.at(e), scale));
  }
}

template <class Type>
MOE_LANES WirePiece pieceOf(const PieceSums<Type>& sums) {
  float values[kWirePiece];
#pragma unroll
  for (int e = 0; e < kWirePiece; ++e)
    values[e] = sums[e / Accumulator<Type>::kFloats].sum[e % Accumulator<Type>::kFloats];
  return WirePiece::of(values);
}
// A piece of one row of bf16, as its sum: a negative zero is 0. Its largest magnitude is found two elements at a time.
class RowPiece : public WirePiece {
 public:
  static MOE_LANES RowPiece of(const Quad (&quads)[2]) {
    RowPiece piece;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const Quad& quad = quads[i / 4];
      const std::uint32_t given = i % 4 == 0 ? quad.x : i % 4 == 1 ? quad.y : i % 4 == 2 ? quad.z : quad.w;
      const std::uint32_t word = wordOf(__hadd2(pairOf(given), pairOf(0)));
      piece.magnitudes_[i] = word & 0x7fff7fffu;
      piece.value[2 * i] = bitsToFloat(word << 16);
      piece.value[2 * i + 1] = bitsToFloat(word & 0xffff0000u);
    }
    return piece;
  }
  MOE_LANES std::uint32_t amax() const {
    return largerHalf(among([](std::uint32_t a, std::uint32_t b) { return wordOf(__hmax2(pairOf(a), pairOf(b))); }));
  }
  MOE_LANES std::uint32_t amaxOrNan() const {
    return largerHalf(among([](std::uint32_t a, std::uint32_t b) { return __vmaxu2(a, b); }));
  }
  MOE_LANES std::uint32_t amin() const {
    const std::uint32_t least = among([](std::uint32_t a, std::uint32_t b) { return __vminu2(a, b); });
    return min(least << 16, least & 0xffff0000u);
  }

 private:
  static MOE_LANES __nv_bfloat162 pairOf(std::uint32_t word) {
    __nv_bfloat162 pair;
    static_assert(sizeof(pair) == sizeof(word));
    memcpy(&pair, &word, sizeof(word));
    return pair;
  }
  static MOE_LANES std::uint32_t wordOf(__nv_bfloat162 pair) {
    std::uint32_t word;
    memcpy(&word, &pair, sizeof(word));
    return word;
  }
  static MOE_LANES std::uint32_t largerHalf(std::uint32_t word) {
    return max(word << 16, word & 0xffff0000u);
  }
  template <class Choose>
  MOE_LANES std::uint32_t among(Choose choose) const {
    std::uint32_t chosen[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) chosen[i] = choose(magnitudes_[i], magnitudes_[i + 4]);
    return choose(choose(chosen[0], chosen[2]), choose(chosen[1], chosen[3]));
  }

  std::uint32_t magnitudes_[8];
};

// The largest value among `lanes` neighbouring lanes.
MOE_LANES std::uint32_t blockMax(std::uint32_t bits, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAll, bits, distance);
    bits = other > bits ? other : bits;
  }
  return bits;
}

// The words of a piece on the wire, as far as a lane has them. The lanes of a unit call it together, and have the same
// words of scales. `factor`: NVFP4.
template <class Piece>
MOE_LANES Coded codesOf(const WireRow& wire, const Piece& piece, int lane, const WireFactor& factor) {
  if (wire.packsTwo()) {
    const ByteScale scale = wireNvfp4Scale(piece.amaxOrNan(), factor);
    std::uint32_t word = scale.byte << 8 * (lane % 4);
    word |= __shfl_xor_sync(kAll, word, 1);
    word |= __shfl_xor_sync(kAll, word, 2);
    const HalfQuad codes = piece.codesE2m1(scale.inverse);
    return {{codes.x, codes.y, 0, 0}, word, floatToBits(factor.factor)};
  }
  if (wire.isLog()) {
    const std::uint32_t amax = blockMax(piece.amaxOrNan(), kWireUnitPieces);
    const std::uint32_t word = logWord(amax, ~blockMax(~piece.amin(), kWireUnitPieces));
    const LogPiece coded = piece.codesLog(LogCoder::of(LogGroup::of(word)));
    return {{coded.word[0], coded.word[1], coded.word[2], coded.word[3]}, word, coded.word[4]};
  }
  if (wire.type == kWireFp8) return {piece.codes(), 0, 0};
  const Fp8Scale scale = wireFp8Scale(blockMax(piece.amax(), kWireUnitPieces));
  return {piece.codes(scale.inverse), floatToBits(scale.scale), 0};
}

// Adds a piece of a row to sums of 0, as if it had been coded, in fewer instructions than coding and reading take. The
// lanes of a unit call it together. Not for LogFMT-10.
MOE_LANES void addUncoded(const WireRow& wire, PieceSums<Bf16>& sums, const RowPiece& piece, const WireFactor& factor) {
  // Rounds once: the product is not so small that it becomes a negative zero.
  const auto set = [&](int e, float value, float scale) { elementOf<Bf16>(sums, e) = __fmaf_rn(value, scale, 0.0f); };
  if (wire.packsTwo()) {
    const ByteScale scale = wireNvfp4Scale(piece.amaxOrNan(), factor);
    const float read = multiplyRounded(fp8::toFloat(scale.byte), factor.factor);
#pragma unroll
    for (int e = 0; e < kWirePiece; ++e) set(e, piece.valueE2m1(e, scale.inverse), read);
    return;
  }
  Fp8Scale scale{1.0f, 1.0f};
  if (wire.type == kWireFp8Blocks) scale = wireFp8Scale(blockMax(piece.amax(), kWireUnitPieces));
  const Quad codes = wire.type == kWireFp8Blocks ? piece.codes(scale.inverse) : piece.codes();
  const std::uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const fp8::Four floats = fp8::toFloats(words[word]);
#pragma unroll
    for (int e = 0; e < 4; ++e) set(4 * word + e, floats.value[e], scale.scale);
  }
}

// Codes sums as a row at `out`. All lanes call its functions together. `kLanding`: the row is made of landing words.
template <bool kLanding>
struct Coder {
  const WireRow& wire;
  std::uint8_t* out;
  int lane;

  // Stores a piece, if it is `there`.
  template <class Piece>
  MOE_LANES void store(const Piece& piece, int element, bool there, const WireFactor& factor) const {
    const Coded coded = codesOf(wire, piece, lane, factor);
    if (!there) return;
    std::uint8_t* codes = out + wire.codesAt(element);
    wire.packsTwo() ? put(codes, HalfQuad{coded.codes.x, coded.codes.y}) : put(codes, coded.codes);
    if (wire.isLog()) put(out + wire.fifthAt(element), coded.more);
    if (wire.scaleWords() == 0 || element % (kWireUnit / wire.scaleWords()) != 0) return;
    put(out + wire.scaleAt(element), coded.scale);
  }
  // Stores the copies of the row's float.
  MOE_LANES void storeFactor(const WireFactor& factor) const {
    if (lane != 0) return;
    const std::uint32_t bits = floatToBits(factor.factor);
    put(out + wire.factorAt(), Quad{bits, bits, bits, bits});
  }

 private:
  template <class Piece>
  static MOE_LANES void put(std::uint8_t* to, const Piece& piece) {
    cuda_landing::put<kLanding>(reinterpret_cast<Piece*>(to), piece);
  }
};

}  // namespace moe::cuda_wire
