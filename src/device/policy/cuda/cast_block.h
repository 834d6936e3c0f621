// What a lane makes of a piece of a row that is cast, for device/policy/cuda/cast.h alone.
#pragma once

#include "device/rows/cast_row.h"

namespace moe::cuda_cast {

inline constexpr int kLanes = 32;
inline constexpr unsigned kAll = 0xffffffffu;

// The largest among `lanes` neighbouring lanes, as bits of floats that are not negative and so order like their bits.
MOE_LANES std::uint32_t blockMax(std::uint32_t bits, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAll, bits, distance);
    bits = other > bits ? other : bits;
  }
  return bits;
}

// What four lanes hold that are `step` apart.
MOE_LANES Quad wordsOf(std::uint32_t own, int first, int step) {
  return {__shfl_sync(kAll, own, first), __shfl_sync(kAll, own, first + step), __shfl_sync(kAll, own, first + 2 * step),
          __shfl_sync(kAll, own, first + 3 * step)};
}

// What lane s stores of a tile's scales: `words` words, the first of which is word `first` of its sink's.
template <bool kScatters>
struct ScaleWords {
  CastSink to;
  int first, words;

  MOE_LANES ScaleWords behind(int before) const { return {to, first + before, words - before}; }
  MOE_LANES bool any() const { return to.codes != nullptr; }
  MOE_LANES void storeWord(std::uint32_t word) const {
    reinterpret_cast<std::uint32_t*>(to.scales)[kScatters ? first * to.wordStride : first] = word;
  }
  MOE_LANES void storeQuad(const Quad& quad) const {
    auto* at = reinterpret_cast<std::uint32_t*>(to.scales) + (kScatters ? first * to.wordStride : first);
    if (!kScatters || (to.wordStride == 1 && words >= 4 && reinterpret_cast<std::uint64_t>(at) % sizeof(Quad) == 0)) {
      *reinterpret_cast<Quad*>(at) = quad;
      return;
    }
    const std::uint32_t all[] = {quad.x, quad.y, quad.z, quad.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i < words) at[i * to.wordStride] = all[i];
    }
  }
};

// Blocks of 128 elements, eight lanes each, cast to e4m3. Elements are not multiplied first.
struct LargeBlocks {
  static constexpr int kBlockLanes = 8;
  int type;  // with the bit beside it

  struct Coded {
    Quad codes;
    std::uint32_t scale;  // bits of a float
  };
  template <class Type>
  MOE_LANES Coded code(const CastPiece<Type>& piece) const {
    const Fp8Scale scale = castScale(type, bitsToFloat(blockMax(floatToBits(piece.amax()), kBlockLanes)));
    return {piece.codes(scale.inverse), floatToBits(scale.scale)};
  }
  MOE_LANES int cast() const { return type; }
  MOE_LANES LargeBlocks forRow(float) const { return *this; }
  MOE_LANES void storeCodes(std::uint8_t* to, int piece, const Coded& coded) const {
    reinterpret_cast<Quad*>(to)[piece] = coded.codes;
  }
  // The tile's four scales, or their exponents.
  template <bool kScatters>
  MOE_LANES void storeScales(std::uint32_t own, const ScaleWords<kScatters>& to) const {
    const Quad scales = wordsOf(own, 0, kBlockLanes);
    if (!to.any()) return;
    if (castScalesAreFloats(type)) {
      to.storeQuad(scales);
    } else {
      to.storeWord(exponentsOf(scales));
    }
  }
};

// Blocks of any format: eight, two or one lane each.
struct AnyBlocks {
  CastFactors factors;
  int lane;

  struct Coded {
    Quad codes;  // of E2M1 the first half
    std::uint32_t scale;
  };
  MOE_LANES int cast() const { return factors.cast; }
  MOE_LANES AnyBlocks forRow(float weight) const { return {factors.forRow(weight), lane}; }
  MOE_LANES int blockLanes() const { return castBlockElements(factors.cast) / kCastPieceElements; }

  template <class Type>
  MOE_LANES Coded code(const CastPiece<Type>& piece) const {
    const BlockScale scale = blockScale(factors, blockMax(piece.magnitude(factors.cast), blockLanes()));
    if (!castToE2m1(factors.cast)) return {piece.codes(factors.input, scale.inverse), scale.bits};
    const HalfQuad codes = piece.codesE2m1(factors.input, scale.inverse);
    return {{codes.x, codes.y, 0, 0}, scale.bits};
  }
  MOE_LANES void storeCodes(std::uint8_t* to, int piece, const Coded& coded) const {
    if (castToE2m1(factors.cast)) {
      reinterpret_cast<HalfQuad*>(to)[piece] = {coded.codes.x, coded.codes.y};
    } else {
      reinterpret_cast<Quad*>(to)[piece] = coded.codes;
    }
  }
  template <bool kScatters>
  MOE_LANES void storeScales(std::uint32_t own, const ScaleWords<kScatters>& to) const {
    if (blockLanes() == LargeBlocks::kBlockLanes) return LargeBlocks{factors.cast}.storeScales(own, to);
    // Four blocks share a word, whose lanes all get it: eight of MX, four of NVFP4.
    const int lanes = blockLanes();
    std::uint32_t word = own << lane / lanes % 4 * 8;
    word |= __shfl_xor_sync(kAll, word, lanes);
    word |= __shfl_xor_sync(kAll, word, 2 * lanes);
    const Quad low = wordsOf(word, 0, 4 * lanes);
    if (lanes == 2) {
      if (to.any()) to.storeQuad(low);
      return;
    }
    const Quad high = wordsOf(word, kLanes / 2, 4);
    if (!to.any()) return;
    to.storeQuad(low);
    to.behind(4).storeQuad(high);
  }
};

}  // namespace moe::cuda_cast
