// The formats that a row may be cast to while it is sent, and their sizes. On the wire and in its slot a row is one
// piece of memory: its codes, then its scales by tiles of 512 elements, padded to 16 bytes.
#pragma once

#include "device/lanes.h"

namespace moe {

enum CastType : int {
  kNoCast,
  kCastFp8,       // e4m3, fp32 scales
  kCastFp8Ue8m0,  // e4m3, powers of two as bytes
  kCastFp8Pow2,   // e4m3, powers of two as fp32
  kCastMxfp8,     // e4m3, e8m0
  kCastMxfp4,     // e2m1, e8m0
  kCastNvfp4      // e2m1, e4m3
};
inline constexpr int kCastTypes = 15;  // the bits of a cast that are its type
inline constexpr int kCastExact = 16;  // a flag beside the type: small magnitudes are scaled up as far as floats allow

inline constexpr int kCastRowMultiple = 128;   // the number of elements of a row is a multiple of this
inline constexpr int kCastPieceElements = 16;  // elements that a lane casts at once
inline constexpr int kCastTileElements = 512, kCastTilePieces = kCastTileElements / kCastPieceElements;

MOE_HOST_DEVICE constexpr int castType(int cast) {
  return cast & kCastTypes;
}
// Elements that share a scale.
MOE_HOST_DEVICE constexpr int castBlockElements(int cast) {
  return castType(cast) <= kCastFp8Pow2 ? 128 : castType(cast) == kCastNvfp4 ? 16 : 32;
}
MOE_HOST_DEVICE constexpr bool castToE2m1(int cast) {
  return castType(cast) >= kCastMxfp4;
}
MOE_HOST_DEVICE constexpr bool castScalesAreFloats(int cast) {
  return castType(cast) == kCastFp8 || castType(cast) == kCastFp8Pow2;
}
// Bytes of the codes of `elements` elements.
MOE_HOST_DEVICE constexpr int castCodeBytes(int cast, int elements) {
  return castToE2m1(cast) ? elements / 2 : elements;
}
MOE_HOST_DEVICE constexpr int castTiles(int elements) {
  return (elements + kCastTileElements - 1) / kCastTileElements;
}
MOE_HOST_DEVICE constexpr int castTileBlocks(int cast) {
  return kCastTileElements / castBlockElements(cast);
}
// Bytes of a tile's scales.
MOE_HOST_DEVICE constexpr int castScaleBytes(int cast) {
  return castTileBlocks(cast) * (castScalesAreFloats(cast) ? 4 : 1);
}
inline constexpr int kCastScaleBytesMax = 32;
// 32-bit words of a row's scales, in the caller's output.
MOE_HOST_DEVICE constexpr int castScaleWords(int cast, int elements) {
  const int blocks = elements / castBlockElements(cast);
  return castScalesAreFloats(cast) ? blocks : (blocks + 3) / 4;
}
MOE_HOST_DEVICE constexpr std::uint32_t castRowBytes(int cast, int elements) {
  return static_cast<std::uint32_t>(castCodeBytes(cast, elements) +
                                    roundUp(std::int64_t{castTiles(elements)} * castScaleBytes(cast), sizeof(Quad)));
}

// A cast, and the addresses of scales and weights that a step reads when it begins to cast. NULL: 1.
struct CastRule {
  int cast;
  const float* inputScale;            // elements are multiplied by it first, together with the weight of their row
  const float* globalScale;           // NVFP4 only
  const float* rowWeights = nullptr;  // [tokens]
};

}  // namespace moe
