// How a block sums rows, with a lane per thread. A thread has eight pieces of 16 bytes in flight: four of each of up to
// two rows, two of each of up to four, or one of each of eight. The addresses of rows, and their weights, lie in shared
// memory.
#pragma once

#include "device/policy/cuda/landing.h"
#include "device/rows/row_jobs.h"

namespace moe::block_sums {

inline constexpr int kTermsMax = 64;

// The rows of a sum.
template <bool kWeights>
struct Desk {
  SumJob job;
  const std::uint8_t* rows[kTermsMax];

  MOE_LANES void keep(const SumList auto& list, int i, int term) { rows[term] = list.term(i, term); }
  MOE_LANES float weight(int) const { return 1.0f; }
};
template <>
struct Desk<true> {
  SumJob job;
  const std::uint8_t* rows[kTermsMax];
  float weights[kTermsMax];

  MOE_LANES void keep(const auto& list, int i, int term) {
    rows[term] = list.term(i, term);
    weights[term] = list.weight(i, term);
  }
  MOE_LANES float weight(int term) const { return weights[term]; }
};

// How the pieces of a tile are read. Present is for rows that are there. Landed is for sums whose first rows are
// landing words: it waits for all of them together and leaves them empty. Piece u of row j is tile(j)[u * threads], if
// isThere(j, u); row 0 is term `first`.
struct Present {
  static constexpr bool kTakes = false;
  MOE_LANES Quad load(const Quad* from, int) const { return *from; }
  template <class Pieces, class Tile, class IsThere>
  MOE_LANES bool settle(Pieces&, Tile, IsThere, int) const {
    return true;
  }
};
// PauseOf makes a function that is called with a term that has not arrived, and that returns whether to keep waiting.
template <class PauseOf>
struct Landed {
  static constexpr bool kTakes = true;
  PauseOf pauseOf;
  int count;

  MOE_LANES Quad load(const Quad* from, int term) const { return term < count ? cuda_landing::load(from) : *from; }

  template <int kTerms, int kWide, class Tile, class IsThere>
  MOE_LANES bool settle(Quad (&piece)[kTerms][kWide], Tile tile, IsThere isThere, int first) const {
    const auto each = [&](auto body) {
      const int threads = static_cast<int>(blockDim.x);
#pragma unroll
      for (int j = 0; j < kTerms; ++j) {
        if (first + j >= count) break;
#pragma unroll
        for (int u = 0; u < kWide; ++u) {
          if (isThere(j, u)) body(tile(j) + u * threads, &piece[j][u], first + j);
        }
      }
    };
    const bool good = await(each);
    each([](const Quad* from, Quad* value, int) {
      *value = fromLanding(*value);
      cuda_landing::store(const_cast<Quad*>(from), Quad{});
    });
    return good;
  }

 private:
  static_assert(kNothingLanded == 0);

  template <class Each>
  MOE_LANES bool await(Each each) const {
    auto goesOn = pauseOf();
    for (;;) {
      int late = -1;
      each([&](const Quad*, const Quad* value, int term) { late = hasLanded(*value) ? late : term; });
      if (late < 0) return true;
      if (!goesOn(late)) return false;
      each([&](const Quad* from, Quad* value, int) {
        if (!hasLanded(*value)) *value = cuda_landing::load(from);
      });
    }
  }
};

// Adds kTerms rows at once, then the next kTerms. Missing rows are zeros, whose addition changes no sum that begins
// with +0.
template <class Type, class List, int kTerms, int kWide, class Desk, class Terms>
MOE_LANES bool sumTiles(const Desk& desk, const SumJob& job, const Terms& terms) {
  const int quads = static_cast<int>(job.bytes / sizeof(Quad)), threads = static_cast<int>(blockDim.x);
  bool good = true;
#pragma unroll 1
  for (int tile = static_cast<int>(threadIdx.x); tile < quads; tile += threads * kWide) {
    Accumulator<Type> sums[kWide];
#pragma unroll 1
    for (int first = 0; first < job.terms; first += kTerms) {
      Quad piece[kTerms][kWide];
      const auto tileOf = [&](int j) {
        return reinterpret_cast<const Quad*>(desk.rows[first + j < job.terms ? first + j : first]) + tile;
      };
      const auto isThere = [&](int j, int u) { return first + j < job.terms && tile + u * threads < quads; };
#pragma unroll
      for (int j = 0; j < kTerms; ++j) {
        const Quad* from = tileOf(j);
#pragma unroll
        for (int u = 0; u < kWide; ++u) {
          piece[j][u] = isThere(j, u) ? terms.load(from + u * threads, first + j) : Quad{0, 0, 0, 0};
        }
      }
      good = terms.settle(piece, tileOf, isThere, first) && good;
#pragma unroll
      for (int j = 0; j < kTerms; ++j) {
        const float weight = Weighted<List> && first + j < job.terms ? desk.weight(first + j) : 1.0f;
#pragma unroll
        for (int u = 0; u < kWide; ++u) sums[u].template add<Weighted<List>>(piece[j][u], weight);
      }
    }
#pragma unroll
    for (int u = 0; u < kWide; ++u) {
      if (tile + u * threads >= quads) continue;
      cuda_landing::put<MadeToLand<List>>(reinterpret_cast<Quad*>(job.out) + tile + u * threads, sums[u].rounded());
    }
  }
  return good;
}
// False: a row did not land.
template <class Type, class List, class Desk, class Terms>
MOE_LANES bool sum(const Desk& desk, const SumJob& job, const Terms& terms) {
  if (job.terms > 4) return sumTiles<Type, List, 8, 1>(desk, job, terms);
  if (job.terms > 2) return sumTiles<Type, List, 4, 2>(desk, job, terms);
  return sumTiles<Type, List, 2, 4>(desk, job, terms);
}

}  // namespace moe::block_sums
