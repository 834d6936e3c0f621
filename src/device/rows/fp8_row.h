// A row that is cast on its way: its codes first, then its scales, by tiles of four blocks. These are functions of one
// lane. Policies share a row among their lanes by pieces (of 16 elements), blocks or tiles.
#pragma once

#include "device/rows/fp8.h"
#include "device/rows/row_jobs.h"

namespace moe {

enum CastType : int { kNoCast, kCastFp8, kCastFp8Ue8m0 };
inline constexpr int kCastTypes = 3;  // the bits of a cast that are its type
inline constexpr int kCastExact = 4;  // a bit beside it: small magnitudes are scaled up as far as floats go

inline constexpr int kCastPieceElements = 16;  // one Quad of codes
inline constexpr int kCastTileBlocks = 4, kCastTileElements = kCastTileBlocks * kFp8BlockElements;
inline constexpr int kCastBlockPieces = kFp8BlockElements / kCastPieceElements;
inline constexpr int kCastTilePieces = kCastTileBlocks * kCastBlockPieces;

MOE_HOST_DEVICE constexpr int castTiles(int elements) {
  return (elements + kCastTileElements - 1) / kCastTileElements;
}
// Bytes of a tile's scales: four floats, or four exponents.
MOE_HOST_DEVICE constexpr int castScaleBytes(int cast) {
  return (cast & kCastTypes) == kCastFp8 ? 16 : 4;
}
// 32-bit words of a row's scales, as the caller sees them.
MOE_HOST_DEVICE constexpr int castScaleWords(int cast, int elements) {
  return (cast & kCastTypes) == kCastFp8 ? elements / kFp8BlockElements : castTiles(elements);
}
MOE_HOST_DEVICE constexpr std::uint32_t castRowBytes(int cast, int elements) {
  return static_cast<std::uint32_t>(elements +
                                    roundUp(std::int64_t{castTiles(elements)} * castScaleBytes(cast), sizeof(Quad)));
}

// A job of castRows: quantise `elements` elements, whole tiles except at the end of a row, and store them to those of
// the `sinks` places whose `codes` is not NULL.
struct CastJob {
  const std::uint8_t* source;
  int elements;
  int sinks;
};
struct CastSink {
  std::uint8_t* codes;
  std::uint8_t* scales;
};

// For castRows: count() jobs, job(i) of elements of rowType(), cast as cast() says, and their places sink(i,
// 0..sinks-1).
template <class List>
concept CastList = requires(const List list, int i) {
  { list.count() } -> std::same_as<int>;
  { list.rowType() } -> std::same_as<int>;
  { list.cast() } -> std::same_as<int>;
  { list.job(i) } -> std::same_as<CastJob>;
  { list.sink(i, i) } -> std::same_as<CastSink>;
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
  MOE_LANES Quad codes(float inverse) const {
    std::uint32_t words[4];
    for (int i = 0; i < kQuads; ++i) {
      const Fp8Codes<Type> codes = quantise<Type>(quad[i], inverse);
      for (int j = 0; j < Type::kPerWord; ++j) words[i * Type::kPerWord + j] = codes.word[j];
    }
    return {words[0], words[1], words[2], words[3]};
  }
};

MOE_LANES Fp8Scale castScale(int cast, float amax) {
  const float least = (cast & kCastExact) != 0 ? kFp8AmaxExact : kFp8AmaxLeast;
  return (cast & kCastTypes) == kCastFp8 ? fp8Scale(amax, least) : ue8m0Scale(amax, least);
}

// The exponents of four scales; 0 for a scale that is not there.
MOE_LANES std::uint32_t exponentsOf(Quad scales) {
  return scales.x >> 23 | scales.y >> 23 << 8 | scales.z >> 23 << 16 | scales.w >> 23 << 24;
}

#if !defined(__CUDACC__)
// Casts one tile on one lane. store(to, from, bytes) gets its codes and its scales for each sink.
template <class Type, class SinkOf, class Store>
void castTile(const CastJob& job, int cast, int tile, SinkOf sinkOf, Store store) {
  std::uint32_t scales[kCastTileBlocks] = {};
  for (int block = 0; block < kCastTileBlocks; ++block) {
    const int first = (tile * kCastTileBlocks + block) * kCastBlockPieces;
    if (first * kCastPieceElements >= job.elements) break;
    float amax = 0.0f;
    for (int i = 0; i < kCastBlockPieces; ++i) {
      amax = largerNumber(amax, CastPiece<Type>::of(job.source, first + i).amax());
    }
    const Fp8Scale scale = castScale(cast, amax);
    scales[block] = floatToBits(scale.scale);
    for (int i = 0; i < kCastBlockPieces; ++i) {
      const Quad codes = CastPiece<Type>::of(job.source, first + i).codes(scale.inverse);
      const int at = (first + i) * kCastPieceElements;
      for (int sink = 0; sink < job.sinks; ++sink) {
        std::uint8_t* to = sinkOf(sink).codes;
        if (to != nullptr) store(to + at, &codes, sizeof codes);
      }
    }
  }
  const std::uint32_t exponents = exponentsOf({scales[0], scales[1], scales[2], scales[3]});
  const void* from = (cast & kCastTypes) == kCastFp8 ? scales : static_cast<const void*>(&exponents);
  const auto bytes = static_cast<std::size_t>(castScaleBytes(cast));
  for (int sink = 0; sink < job.sinks; ++sink) {
    std::uint8_t* to = sinkOf(sink).scales;
    if (to != nullptr) store(to + static_cast<std::size_t>(tile) * bytes, from, bytes);
  }
}
#endif

}  // namespace moe
