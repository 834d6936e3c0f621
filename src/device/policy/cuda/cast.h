// How a CUDA warp casts rows, for device/policy/cuda/warp.h alone. A lane has 16 elements, so that a warp has a tile.
// The lanes of a block find its largest magnitude by shuffles. Two tiles are in flight. Lane s looks up sink s.
#pragma once

#include "device/policy/cuda/cast_block.h"

namespace moe::cuda_cast {

inline constexpr int kTilesAtOnce = 2;
static_assert(kCastTilePieces == kLanes);

// This lane's pieces of some tiles of a row. There is nothing behind the row's end.
template <class Type>
struct Tiles {
  CastPiece<Type> piece[kTilesAtOnce];
  bool there[kTilesAtOnce];
};

template <class Type>
MOE_LANES Tiles<Type> load(const CastJob& job, int tile, int lane) {
  Tiles<Type> tiles{};
#pragma unroll
  for (int u = 0; u < kTilesAtOnce; ++u) {
    const int piece = (tile + u) * kCastTilePieces + lane;
    tiles.there[u] = piece * kCastPieceElements < job.elements;
    if (tiles.there[u]) tiles.piece[u] = CastPiece<Type>::of(job.source, piece);
  }
  return tiles;
}

// Rows by `format`, which says what a lane makes of its piece: code(piece), with the block's lanes, and of a tile's
// scales, scaleWord(). Lane s holds sink s. forRow(weight): the format for a row with this weight.
template <class Type, class Format>
MOE_LANES void store(const Tiles<Type>& tiles, const CastJob& job, const Format& format, int tile, ScaleWords& scales,
                     const CastSink& mine, int lane) {
  const auto codesAt = reinterpret_cast<std::uint64_t>(mine.codes);
#pragma unroll
  for (int u = 0; u < kTilesAtOnce; ++u) {
    if ((tile + u) * kCastTileElements >= job.elements) break;
    const auto coded = format.code(tiles.piece[u]);
    for (int sink = 0; sink < job.sinks; ++sink) {
      auto* to = reinterpret_cast<std::uint8_t*>(__shfl_sync(kAll, codesAt, sink));
      if (to != nullptr && tiles.there[u]) format.storeCodes(to, (tile + u) * kCastTilePieces + lane, coded);
    }
    scales.keep(format.scaleWord(tiles.there[u] ? coded.scale : 0u), tile + u, lane);
  }
}

// The scales that the lanes keep after `tiles` tiles of a row. Lane s holds sink s.
template <bool kScatters>
MOE_LANES void storeScales(const ScaleWords& scales, const CastJob& job, int cast, int tiles, const CastSink& mine,
                           int lane) {
  const int words = kScatters ? castScaleWords(cast, job.elements) : tiles * (castScaleBytes(cast) / 4);
  const auto scalesAt = reinterpret_cast<std::uint64_t>(mine.scales);
  const int word = scales.first(tiles) + lane;
  for (int sink = 0; sink < job.sinks; ++sink) {
    auto* to = reinterpret_cast<std::uint32_t*>(__shfl_sync(kAll, scalesAt, sink));
    const std::int64_t stride = kScatters ? __shfl_sync(kAll, mine.wordStride, sink) : 1;
    if (to != nullptr && word < words) to[word * stride] = scales.kept();
  }
}

// Brings a row that is cast next into the second-level cache: loads from there take half as long.
template <class Type>
MOE_LANES void fetch(const CastJob& job) {
#if __CUDA_ARCH__ >= 900
  if (job.elements == 0) return;
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(job.source),
               "r"(job.elements * (4 / Type::kPerWord)));
#endif
}

template <class Type, CastList Casts, class Format>
MOE_LANES void rowsBy(const Casts& casts, const Format& format, int lane) {
  constexpr bool kScatters = ScattersScales<Casts>;
  const int n = casts.count(), cast = format.cast();
  ScaleWords scales(cast);
  for (int i = 0; i < n; ++i) {
    const CastJob job = casts.job(i);
    const Format ofRow = format.forRow(job.weight);
    CastSink mine{};
    if (lane == kLanes - 1 && i + 1 < n) fetch<Type>(casts.job(i + 1));
#pragma unroll 1
    for (int tile = 0; tile < castTiles(job.elements); tile += kTilesAtOnce) {
      const Tiles<Type> tiles = load<Type>(job, tile, lane);
      if (tile == 0 && lane < job.sinks) mine = casts.sink(i, lane);  // while the row is on its way
      store(tiles, job, ofRow, tile, scales, mine, lane);
      const int all = castTiles(job.elements), done = tile + kTilesAtOnce < all ? tile + kTilesAtOnce : all;
      if (done == all || scales.areAll(done)) storeScales<kScatters>(scales, job, cast, done, mine, lane);
    }
  }
}

// Blocks of 128 whose elements stay as they are have a loop of their own, which neither multiplies twice nor asks.
template <class Type, CastList Casts>
MOE_LANES void rows(const Casts& casts, int lane) {
  const CastRule rule = casts.rule();
  if (castBlockElements(rule.cast) == 128 && rule.inputScale == nullptr && rule.rowWeights == nullptr) {
    rowsBy<Type>(casts, LargeBlocks{rule.cast, lane}, lane);
  } else {
    rowsBy<Type>(casts, AnyBlocks{CastFactors::of(rule), lane}, lane);
  }
}

}  // namespace moe::cuda_cast
