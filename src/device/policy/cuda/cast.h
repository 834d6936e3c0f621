// How a CUDA warp casts rows. Only device/policy/cuda/warp.h includes it. A lane has 16 elements, so that a warp has a
// tile. The lanes of a block find its largest magnitude by shuffles. Two tiles are in flight. Lane s looks up sink s.
#pragma once

#include <type_traits>

#include "device/rows/cast_row.h"

namespace moe::cuda_cast {

// ---- How a lane codes a piece

inline constexpr int kLanes = 32;
inline constexpr unsigned kAll = 0xffffffffu;

// The largest value among `lanes` neighbouring lanes. The values are bits of non-negative floats, which are ordered
// like the floats.
MOE_LANES std::uint32_t blockMax(std::uint32_t bits, int lanes) {
  for (int distance = lanes / 2; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAll, bits, distance);
    bits = other > bits ? other : bits;
  }
  return bits;
}

// The larger number of each of two pairs of 16-bit elements, a NaN if both are one.
template <class Type>
MOE_LANES std::uint32_t largerPair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<Type, Bf16>) {
    asm("max.bf16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  } else {
    asm("max.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(a), "r"(b));
  }
  return pair;
}
// CastPiece::amax(), for which elements of 16 bits are compared two at a time.
template <class Type>
MOE_LANES float amaxOf(const CastPiece<Type>& piece) {
  if constexpr (Type::kPerWord == 1) {
    return piece.amax();
  } else {
    std::uint32_t pair = 0;
#pragma unroll
    for (const Quad& quad : piece.quad) {
      for (const std::uint32_t word : {quad.x, quad.y, quad.z, quad.w})
        pair = largerPair<Type>(pair, word & 0x7fff7fffu);
    }
    return largerNumber(Type::toFloat(pair & 0xffffu), Type::toFloat(pair >> 16));
  }
}

// The words of a row's scales, which a warp makes tile by tile. Each lane keeps one word, so that one store writes many
// words to a sink: small stores cost more time on the wire than their bytes.
class ScaleWords {
 public:
  MOE_LANES explicit ScaleWords(int cast) : tiles_(kLanes * 4 / castScaleBytes(cast)) {}

  // Word w of a tile with W words is kept by lane w * 32 / W.
  MOE_LANES void keep(std::uint32_t word, int tile, int lane) {
    const int at = lane * tiles_;
    const std::uint32_t own = __shfl_sync(kAll, word, at % kLanes);
    if ((tile & (tiles_ - 1)) == at / kLanes) kept_ = own;
  }
  // areAll: whether each lane has a word after `done` tiles of the row. first: the word that lane 0 has then.
  MOE_LANES bool areAll(int done) const { return (done & (tiles_ - 1)) == 0; }
  MOE_LANES int first(int done) const { return (done - 1) / tiles_ * kLanes; }
  MOE_LANES std::uint32_t kept() const { return kept_; }

 private:
  int tiles_;  // tiles whose words the lanes keep; a power of two
  std::uint32_t kept_ = 0;
};

// Blocks of 128 elements, with eight lanes each, cast to e4m3, without input scale and row weights.
struct LargeBlocks {
  static constexpr int kBlockLanes = 8;
  int type;  // includes the flag beside the type
  int lane;

  struct Coded {
    Quad codes;
    std::uint32_t scale;  // bits of a float
  };
  template <class Type>
  MOE_LANES Coded code(const CastPiece<Type>& piece) const {
    const Fp8Scale scale = castScale(type, bitsToFloat(blockMax(floatToBits(amaxOf(piece)), kBlockLanes)));
    return {piece.codes(scale.inverse), floatToBits(scale.scale)};
  }
  MOE_LANES int cast() const { return type; }
  MOE_LANES LargeBlocks forRow(float) const { return *this; }
  MOE_LANES void storeCodes(std::uint8_t* to, int piece, const Coded& coded) const {
    reinterpret_cast<Quad*>(to)[piece] = coded.codes;
  }
  // The word that ScaleWords keeps: the scale, or the exponents of a tile's scales together.
  MOE_LANES std::uint32_t scaleWord(std::uint32_t own) const {
    if (castScalesAreFloats(type)) return own;
    std::uint32_t word = own >> 23 << lane / kBlockLanes * 8;
    word |= __shfl_xor_sync(kAll, word, kBlockLanes);
    return word | __shfl_xor_sync(kAll, word, 2 * kBlockLanes);
  }
};

// Blocks of any format, with eight, two or one lane each.
struct AnyBlocks {
  CastFactors factors;
  int lane;

  struct Coded {
    Quad codes;  // E2M1 uses the first half
    std::uint32_t scale;
  };
  MOE_LANES int cast() const { return factors.cast; }
  MOE_LANES AnyBlocks forRow(float weight) const { return {factors.forRow(weight), lane}; }
  MOE_LANES int blockLanes() const { return castBlockElements(factors.cast) / kCastPieceElements; }

  template <class Type>
  MOE_LANES Coded code(const CastPiece<Type>& piece) const {
    const std::uint32_t own = castToE2m1(factors.cast) ? piece.magnitude(factors.cast) : floatToBits(amaxOf(piece));
    const BlockScale scale = blockScale(factors, blockMax(own, blockLanes()));
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
  // Four scales of small blocks share a word. All their lanes get it: eight with MX, four with NVFP4.
  MOE_LANES std::uint32_t scaleWord(std::uint32_t own) const {
    const int lanes = blockLanes();
    if (lanes == LargeBlocks::kBlockLanes) return LargeBlocks{factors.cast, lane}.scaleWord(own);
    std::uint32_t word = own << lane / lanes % 4 * 8;
    word |= __shfl_xor_sync(kAll, word, lanes);
    return word | __shfl_xor_sync(kAll, word, 2 * lanes);
  }
};

// ---- Rows, tile by tile

inline constexpr int kTilesAtOnce = 2;
static_assert(kCastTilePieces == kLanes);

// This lane's pieces of some tiles of a row. Pieces beyond the row's end are not there.
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

// Stores tiles as codes. `format` defines how a lane codes its piece, code(piece), together with the block's lanes, and
// how a tile's scales are kept, scaleWord(). forRow(weight) is the format for a row with this weight. Lane s holds sink
// s.
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

// Stores the scales that the lanes keep after `tiles` tiles of a row. Lane s holds sink s.
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

// Prefetches the row that is cast next into the second-level cache. Loads from there take half as long.
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
      if (tile == 0 && lane < job.sinks) mine = casts.sink(i, lane);  // while the row is being loaded
      store(tiles, job, ofRow, tile, scales, mine, lane);
      const int all = castTiles(job.elements), done = tile + kTilesAtOnce < all ? tile + kTilesAtOnce : all;
      if (done == all || scales.areAll(done)) storeScales<kScatters>(scales, job, cast, done, mine, lane);
    }
  }
}

// Blocks of 128 elements without input scale and row weights have a loop of their own, which has no second
// multiplication and no branches on the format.
template <class Type, CastList Casts>
MOE_LANES void rows(const Casts& casts, int lane) {
  const CastRule rule = casts.rule();
  if (castBlockElements(rule.cast) == 128 && rule.inputScale == nullptr && rule.rowWeights == nullptr) {
    rowsBy<Type>(casts, LargeBlocks{rule.cast, lane}, lane);
  } else {
    rowsBy<Type>(casts, AnyBlocks{CastFactors::of(rule), lane}, lane);
  }
}

// ---- Rows of a block, whose CUDA warps share each row: warp w has tiles w, w + warps, ...

// A lane's piece of a tile, as it was loaded. The row type is looked at later, so that the code that finds places is
// not repeated for each type.
struct RawPiece {
  Quad quad[4];
  bool there;

  MOE_LANES void load(const CastJob& job, int rowType, int tile, int lane) {
    const int piece = tile * kCastTilePieces + lane, quads = rowType == kFp32 ? 4 : 2;
    there = piece * kCastPieceElements < job.elements;
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if (there && q < quads) quad[q] = reinterpret_cast<const Quad*>(job.source)[piece * quads + q];
    }
  }
  template <class Type>
  MOE_LANES CastPiece<Type> as() const {
    CastPiece<Type> piece{};
#pragma unroll
    for (int q = 0; q < CastPiece<Type>::kQuads; ++q) {
      if (there) piece.quad[q] = quad[q];
    }
    return piece;
  }
};

// Stores a tile as codes and scales. Lane s holds sink s, or none. Neighbouring lanes have the same word of scales, and
// the first of them stores it. Their number is a power of two, so nothing is divided.
template <class Type, class Format>
MOE_LANES void storeTile(const CastPiece<Type>& piece, bool there, const Format& format, int tile, const CastSink& mine,
                         int lane) {
  const auto coded = format.code(piece);
  const std::uint32_t word = format.scaleWord(there ? coded.scale : 0u);
  const unsigned words = static_cast<unsigned>(castScaleBytes(format.cast())) / 4;
  const unsigned at = static_cast<unsigned>(lane) * words;
  const auto codesAt = reinterpret_cast<std::uint64_t>(mine.codes);
  const auto scalesAt = reinterpret_cast<std::uint64_t>(mine.scales);
#pragma unroll 1
  for (unsigned left = __ballot_sync(kAll, codesAt != 0); left != 0; left &= left - 1) {
    const int sink = __ffs(static_cast<int>(left)) - 1;
    auto* codes = reinterpret_cast<std::uint8_t*>(__shfl_sync(kAll, codesAt, sink));
    auto* scales = reinterpret_cast<std::uint32_t*>(__shfl_sync(kAll, scalesAt, sink));
    if (there) format.storeCodes(codes, tile * kCastTilePieces + lane, coded);
    if (at % kLanes == 0) scales[static_cast<unsigned>(tile) * words + at / kLanes] = word;
  }
}

// The first piece of a warp is loaded while the places of rows are found, and each further one before the previous one
// is coded.
// `withType`: like withRowType.
template <CastList Casts, class WithType>
MOE_LANES bool rowsOfBlock(const Casts& casts, int rowType, WithType withType, int warp, int warps, int lane) {
  static_assert(!ScattersScales<Casts>);
  const int n = casts.count();
  CastJob job = n > 0 ? casts.job(0) : CastJob{nullptr, 0, 0};
  RawPiece next{};
  if (!mayPlace(casts, [&] { next.load(job, rowType, warp, lane); })) return false;
  const CastRule rule = casts.rule();
  const auto rowsAs = [&](auto type, const auto& format) {
    using Type = decltype(type);
    CastSink mine{};
#pragma unroll 1
    for (int i = 0, tile = warp; i < n;) {
      const RawPiece piece = next;
      const float weight = job.weight;
      const int at = tile, tiles = castTiles(job.elements);
      if (at == warp) mine = lane < job.sinks ? casts.sink(i, lane) : CastSink{};
      tile += warps;
      if (tile >= tiles) {
        tile = warp;
        if (++i < n) job = casts.job(i);
      }
      if (i < n) next.load(job, rowType, tile, lane);
      if (at < tiles) storeTile(piece.as<Type>(), piece.there, format.forRow(weight), at, mine, lane);
    }
  };
  withType(rowType, [&](auto type) {
    if constexpr (CastsToFp8Alone<Casts>) {
      rowsAs(type, LargeBlocks{rule.cast, lane});
    } else {
      rowsAs(type, AnyBlocks{CastFactors::of(rule), lane});
    }
  });
  return true;
}

}  // namespace moe::cuda_cast
