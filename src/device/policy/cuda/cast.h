// How a CUDA warp casts rows, for device/policy/cuda/warp.h alone. A lane has 16 elements, so that eight lanes share a
// block and find its largest magnitude by shuffles, and a warp has a tile. Two tiles are in flight. Lane s stores the
// scales to sink s.
#pragma once

#include "device/rows/fp8_row.h"

namespace moe::cuda_cast {

inline constexpr int kLanes = 32, kTilesAtOnce = 2;
inline constexpr unsigned kAll = 0xffffffffu;
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

// The largest among the eight lanes of a block. Floats that are not negative order like their bits.
MOE_LANES float blockMax(float amax) {
  std::uint32_t bits = floatToBits(amax);
  for (int distance = kCastBlockPieces / 2; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAll, bits, distance);
    bits = other > bits ? other : bits;
  }
  return bitsToFloat(bits);
}

// Lane s stores a tile's four scales to sink s.
MOE_LANES void storeScales(float scale, int cast, int tile, int sinks, const CastSink& mine, int lane) {
  const std::uint32_t own = floatToBits(scale);
  const Quad scales{__shfl_sync(kAll, own, 0 * kCastBlockPieces), __shfl_sync(kAll, own, 1 * kCastBlockPieces),
                    __shfl_sync(kAll, own, 2 * kCastBlockPieces), __shfl_sync(kAll, own, 3 * kCastBlockPieces)};
  if (lane >= sinks || mine.scales == nullptr) return;
  if ((cast & kCastTypes) == kCastFp8) {
    reinterpret_cast<Quad*>(mine.scales)[tile] = scales;
  } else {
    reinterpret_cast<std::uint32_t*>(mine.scales)[tile] = exponentsOf(scales);
  }
}

// Lane s holds sink s.
template <class Type>
MOE_LANES void store(const Tiles<Type>& tiles, const CastJob& job, int cast, int tile, const CastSink& mine, int lane) {
  const auto codesAt = reinterpret_cast<std::uint64_t>(mine.codes);
#pragma unroll
  for (int u = 0; u < kTilesAtOnce; ++u) {
    if ((tile + u) * kCastTileElements >= job.elements) break;
    const Fp8Scale scale = castScale(cast, blockMax(tiles.piece[u].amax()));
    const Quad codes = tiles.piece[u].codes(scale.inverse);
    for (int sink = 0; sink < job.sinks; ++sink) {
      auto* to = reinterpret_cast<Quad*>(__shfl_sync(kAll, codesAt, sink));
      if (to != nullptr && tiles.there[u]) to[(tile + u) * kCastTilePieces + lane] = codes;
    }
    storeScales(tiles.there[u] ? scale.scale : 0.0f, cast, tile + u, job.sinks, mine, lane);
  }
}

template <class Type, CastList Casts>
MOE_LANES void rows(const Casts& casts, int lane) {
  const int n = casts.count();
  for (int i = 0; i < n; ++i) {
    const CastJob job = casts.job(i);
    CastSink mine{};
#pragma unroll 1
    for (int tile = 0; tile < castTiles(job.elements); tile += kTilesAtOnce) {
      const Tiles<Type> tiles = load<Type>(job, tile, lane);
      if (tile == 0 && lane < job.sinks) mine = casts.sink(i, lane);  // while the row is on its way
      store(tiles, job, casts.cast(), tile, mine, lane);
    }
  }
}

}  // namespace moe::cuda_cast
