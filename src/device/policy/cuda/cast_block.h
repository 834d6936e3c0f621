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

// The words of a row's scales, which a warp makes tile by tile. Each lane keeps one, so that a place gets many by one
// store: the wire takes longer for small stores than for what they carry.
class ScaleWords {
 public:
  MOE_LANES explicit ScaleWords(int cast) : tiles_(kLanes * 4 / castScaleBytes(cast)) {}

  // Word w of a tile's W words is in lane w * 32 / W.
  MOE_LANES void keep(std::uint32_t word, int tile, int lane) {
    const int at = lane * tiles_;
    const std::uint32_t own = __shfl_sync(kAll, word, at % kLanes);
    if ((tile & (tiles_ - 1)) == at / kLanes) kept_ = own;
  }
  // Whether each lane has one after so many tiles of the row; and of how many words lane 0 has the first.
  MOE_LANES bool areAll(int done) const { return (done & (tiles_ - 1)) == 0; }
  MOE_LANES int first(int done) const { return (done - 1) / tiles_ * kLanes; }
  MOE_LANES std::uint32_t kept() const { return kept_; }

 private:
  int tiles_;  // whose words the lanes keep, a power of two
  std::uint32_t kept_ = 0;
};

// Blocks of 128 elements, eight lanes each, cast to e4m3. Elements are not multiplied first.
struct LargeBlocks {
  static constexpr int kBlockLanes = 8;
  int type;  // with the bit beside it
  int lane;

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
  // What ScaleWords keeps of a tile: the scales, or their exponents together.
  MOE_LANES std::uint32_t scaleWord(std::uint32_t own) const {
    if (castScalesAreFloats(type)) return own;
    std::uint32_t word = own >> 23 << lane / kBlockLanes * 8;
    word |= __shfl_xor_sync(kAll, word, kBlockLanes);
    return word | __shfl_xor_sync(kAll, word, 2 * kBlockLanes);
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
  // Of small blocks four share a word, whose lanes all get it: eight of MX, four of NVFP4.
  MOE_LANES std::uint32_t scaleWord(std::uint32_t own) const {
    const int lanes = blockLanes();
    if (lanes == LargeBlocks::kBlockLanes) return LargeBlocks{factors.cast, lane}.scaleWord(own);
    std::uint32_t word = own << lane / lanes % 4 * 8;
    word |= __shfl_xor_sync(kAll, word, lanes);
    return word | __shfl_xor_sync(kAll, word, 2 * lanes);
  }
};

}  // namespace moe::cuda_cast
