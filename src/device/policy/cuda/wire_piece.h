// What a lane of a CUDA warp does with a piece of 16 elements of a row in a wire format (rows/wire_row.h): it adds
// coded elements to sums, and codes sums. A warp has 512 elements at a time. The lanes of a block find its largest
// magnitude by shuffles, and the block's first lane stores the scale.
#pragma once

#include "device/policy/cuda/landing.h"
#include "device/rows/wire_sums.h"

namespace moe::cuda_wire {

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
MOE_LANES void addElement(PieceSums<Type>& sums, int e, float value) {
  float& sum = sums[e / Accumulator<Type>::kFloats].sum[e % Accumulator<Type>::kFloats];
  sum = addRounded(sum, value);
}
template <class Type>
MOE_LANES void addLog(PieceSums<Type>& sums, const Coded& piece) {
  const LogGroup group = LogGroup::of(piece.scale);
  const LogPiece fields{{piece.codes.x, piece.codes.y, piece.codes.z, piece.codes.w, piece.more}};
#pragma unroll
  for (int e = 0; e < kWirePiece; ++e) addElement<Type>(sums, e, group.valueOf(fields.fieldAt(e)));
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
MOE_LANES Coded codesOf(const WireRow& wire, const WirePiece& piece, int lane, const WireFactor& factor) {
  if (wire.packsTwo()) {
    const ByteScale scale = nvfp4Scale(bitsToFloat(piece.amaxOrNan()), factor.global);
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

// Codes sums as a row at `out`. All lanes call its functions together. `kLanding`: the row is made of landing words.
template <bool kLanding>
struct Coder {
  const WireRow& wire;
  std::uint8_t* out;
  int lane;

  // Stores a piece, if it is `there`.
  MOE_LANES void store(const WirePiece& piece, int element, bool there, const WireFactor& factor) const {
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
