// How a row is cast while it is sent. These are functions of one lane. Policies divide a row among their lanes by
// pieces, blocks or tiles.
#pragma once

#include <algorithm>
#include <cstring>

#include "device/rows/block_scales.h"
#include "device/rows/cast_type.h"
#include "device/rows/fp8.h"
#include "device/rows/row_jobs.h"

namespace moe {

// A job of castRows: quantises `elements` elements, which are whole tiles except at the end of a row. It stores them to
// those of the `sinks` places whose `codes` is not NULL.
struct CastJob {
  const std::uint8_t* source;
  int elements;
  int sinks;
  float weight = 1.0f;  // weight of the row
};
// A place for codes and scales. Scales are words of 32 bits; word w is stored at `scales` + w * `wordStride` words.
struct CastSink {
  std::uint8_t* codes;
  std::uint8_t* scales;
  std::int64_t wordStride;
};

// For castRows: count() jobs job(i) of elements of rowType(), which are cast by rule(), and their places sink(i,
// 0..sinks-1).
template <class List>
concept CastList = requires(const List list, int i) {
  { list.count() } -> std::same_as<int>;
  { list.rowType() } -> std::same_as<int>;
  { list.rule() } -> std::same_as<CastRule>;
  { list.job(i) } -> std::same_as<CastJob>;
  { list.sink(i, i) } -> std::same_as<CastSink>;
};

// For lists whose sinks have room for a row's own scale words only, with a stride between the words. Other sinks have
// room for whole tiles of contiguous words.
template <class List>
concept ScattersScales = requires {
  requires List::kScatters;
};

// For lists whose rule is always a cast to e4m3 with a scale for 128 elements, and nothing else that scales them.
template <class List>
concept CastsToFp8Alone = requires {
  requires List::kFp8Alone;
};

// A rule with the values of its scales.
struct CastFactors {
  int cast;
  float input, global;

  static MOE_LANES CastFactors of(const CastRule& rule) {
    return {rule.cast, rule.inputScale != nullptr ? *rule.inputScale : 1.0f,
            rule.globalScale != nullptr ? *rule.globalScale : 1.0f};
  }
  // The factors of one row. An element is multiplied once, by the rounded product of input scale and weight.
  MOE_LANES CastFactors forRow(float weight) const { return {cast, multiplyRounded(input, weight), global}; }
};

template <class Type>
struct CastPiece {
  static constexpr int kQuads = 4 / Type::kPerWord;
  Quad quad[kQuads];

  static MOE_LANES CastPiece of(const std::uint8_t* source, int piece) {
    CastPiece result;
    for (int i = 0; i < kQuads; ++i) result.quad[i] = reinterpret_cast<const Quad*>(source)[piece * kQuads + i];
    return result;
  }
  MOE_LANES float amax() const {
    float largest = 0.0f;
    for (int i = 0; i < kQuads; ++i) largest = largerNumber(largest, amaxOf<Type>(quad[i]));
    return largest;
  }
  // The bits of the largest magnitude. For formats whose codes have no NaN, this includes NaNs.
  MOE_LANES std::uint32_t magnitude(int cast) const {
    if (!castToE2m1(cast)) return floatToBits(amax());
    std::uint32_t largest = 0;
    for (int i = 0; i < kQuads; ++i) {
      const std::uint32_t bits = magnitudeOf<Type>(quad[i]);
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }
  // The four elements from element 4 * i on.
  MOE_LANES FourFloats four(int i) const {
    if constexpr (Type::kPerWord == 2) {
      const Quad& from = quad[i / 2];
      return i % 2 == 0 ? fourOf<Type>(from.x, from.y) : fourOf<Type>(from.z, from.w);
    } else {
      return fourOf(quad[i]);
    }
  }
  MOE_LANES Quad codes(float inverse) const {
    std::uint32_t words[4];
    for (int i = 0; i < kQuads; ++i) {
      const Fp8Codes<Type> codes = quantise<Type>(quad[i], inverse);
      for (int j = 0; j < Type::kPerWord; ++j) words[i * Type::kPerWord + j] = codes.word[j];
    }
    return {words[0], words[1], words[2], words[3]};
  }
  // The codes of elements that are multiplied by `input` first.
  MOE_LANES Quad codes(float input, float inverse) const {
    return {fp8::quantiseFour(scaled(four(0), input), inverse), fp8::quantiseFour(scaled(four(1), input), inverse),
            fp8::quantiseFour(scaled(four(2), input), inverse), fp8::quantiseFour(scaled(four(3), input), inverse)};
  }
  MOE_LANES HalfQuad codesE2m1(float input, float inverse) const {
    return {quantiseEightE2m1(scaled(four(0), input), scaled(four(1), input), inverse),
            quantiseEightE2m1(scaled(four(2), input), scaled(four(3), input), inverse)};
  }
};

MOE_LANES Fp8Scale castScale(int cast, float amax) {
  const float least = (cast & kCastExact) != 0 ? kFp8AmaxExact : kFp8AmaxLeast;
  return castType(cast) == kCastFp8 ? fp8Scale(amax, least) : ue8m0Scale(amax, least);
}

// A block's scale: the bits of a float for blocks of 128, else a byte. `inverse` is the factor for the block's
// elements, applied after `input`.
struct BlockScale {
  std::uint32_t bits;
  float inverse;
};

// `magnitude` is CastPiece::magnitude(), the largest of the block's pieces. Rounding keeps the order, so the largest
// product with `input` is that of the largest element.
MOE_LANES BlockScale blockScale(const CastFactors& factors, std::uint32_t magnitude) {
  const float amax = multiplyRounded(bitsToFloat(magnitude), bitsToFloat(floatToBits(factors.input) & kMagnitudeBits));
  if (castBlockElements(factors.cast) == 128) {
    const Fp8Scale scale = castScale(factors.cast, amax);
    return {floatToBits(scale.scale), scale.inverse};
  }
  const ByteScale scale = castType(factors.cast) == kCastNvfp4   ? nvfp4Scale(amax, factors.global)
                          : castType(factors.cast) == kCastMxfp4 ? mxScale<E2m1>(amax)
                                                                 : mxScale<E4m3>(amax);
  return {scale.byte, scale.inverse};
}

#if !defined(__CUDACC__)
// Stores scale `block` of a tile, in the form that travels, to the tile's scales.
inline void putScale(std::uint8_t* scales, int cast, int block, std::uint32_t bits) {
  if (castScalesAreFloats(cast)) {
    std::memcpy(scales + std::ptrdiff_t{4} * block, &bits, sizeof bits);
  } else {
    scales[block] = static_cast<std::uint8_t>(castType(cast) == kCastFp8Ue8m0 ? bits >> 23 : bits);
  }
}

// Stores the scales of a tile. The row has `words` words of them.
template <bool kScatters, class Store>
void storeTileScales(const CastSink& to, const std::uint8_t* scales, int cast, int tile, int words, Store store) {
  const auto bytes = static_cast<std::size_t>(castScaleBytes(cast));
  const auto first = static_cast<std::int64_t>(bytes) * tile;
  if (!kScatters || to.wordStride == 1) {
    store(to.scales + first, scales, kScatters ? static_cast<std::size_t>(words) * 4 : bytes);
    return;
  }
  for (std::int64_t word = 0; word < words; ++word) {
    store(to.scales + (first + 4 * word) * to.wordStride, scales + 4 * word, std::size_t{4});
  }
}

// Casts one tile on one lane. It calls store(to, from, bytes) for the codes and the scales of each sink.
template <class Type, bool kScatters, class SinkOf, class Store>
void castTile(const CastJob& job, const CastFactors& factors, int tile, SinkOf sinkOf, Store store) {
  const int cast = factors.cast, blocks = castTileBlocks(cast), pieces = kCastTilePieces / blocks;
  const bool plain = factors.input == 1.0f;  // gives the same bits faster
  alignas(Quad) std::uint8_t scales[kCastScaleBytesMax] = {};
  const auto storeCodes = [&](int piece, const auto& codes) {
    for (int sink = 0; sink < job.sinks; ++sink) {
      std::uint8_t* to = sinkOf(sink).codes;
      if (to != nullptr) store(to + static_cast<std::size_t>(piece) * sizeof codes, &codes, sizeof codes);
    }
  };
  for (int block = 0; block < blocks; ++block) {
    const int first = (tile * blocks + block) * pieces;
    if (first * kCastPieceElements >= job.elements) break;
    std::uint32_t magnitude = 0;
    for (int i = 0; i < pieces; ++i) {
      magnitude = std::max(magnitude, CastPiece<Type>::of(job.source, first + i).magnitude(cast));
    }
    const BlockScale scale = blockScale(factors, magnitude);
    putScale(scales, cast, block, scale.bits);
    for (int i = 0; i < pieces; ++i) {
      const auto piece = CastPiece<Type>::of(job.source, first + i);
      if (castToE2m1(cast)) {
        storeCodes(first + i, piece.codesE2m1(factors.input, scale.inverse));
      } else {
        storeCodes(first + i, plain ? piece.codes(scale.inverse) : piece.codes(factors.input, scale.inverse));
      }
    }
  }
  const int words = castScaleWords(cast, std::min(job.elements - tile * kCastTileElements, kCastTileElements));
  for (int sink = 0; sink < job.sinks; ++sink) {
    const CastSink to = sinkOf(sink);
    if (to.codes != nullptr) storeTileScales<kScatters>(to, scales, cast, tile, words, store);
  }
}
#endif

}  // namespace moe
