// How a CUDA warp sums rows through registers. Finding a row takes a chain of dependent loads. Therefore the lanes look
// up several sums at once and keep them in shared memory: up to 8 sums, with 64 terms together at most. A lane then has
// 8 loads of 16 bytes in flight (4 terms, 2 pieces); without weights it has 6 for two terms (3 pieces) and 7 for one.
// Further terms follow one by one, and all are added in their order. The first rows of a sum may be landing words: see
// landing.h. A row that is the only term of its sum is still added to 0, which settles the bits of -0 and NaN.
#pragma once

#include "device/policy/cuda/landing.h"
#include "device/rows/row_jobs.h"

namespace moe::cuda_sums {

inline constexpr int kDeskTerms = 64, kDeskJobs = 8;
inline constexpr int kMoreTerms = 1;  // rows at once after the first terms of a sum
inline constexpr int kLanes = 32;

// The sums that a warp makes next. Their terms follow one another, sum after sum.
struct Desk {
  const std::uint8_t* rows[kDeskTerms];
  float weights[kDeskTerms];
  SumJob jobs[kDeskJobs];
  int landing[kDeskJobs];
  int own[kDeskJobs];  // OwnsRows: the term that is not coded yet; -1: there is none
};

// A power of two. A token has up to 32 destinations and 2 biases.
MOE_LANES int sumsAtOnce(int termsMax) {
  int sums = kDeskJobs;
  while (sums * termsMax > kDeskTerms) sums /= 2;
  return sums;
}

// For sums without landing words.
struct NoLanding {
  static constexpr bool kTakes = false;
};

// Loads terms begin .. begin + kCount - 1. Missing terms are zeros, whose addition changes no sum that begins with +0.
// Terms below `landed` are landing words.
template <bool kTakes, int kCount, int kPieces>
MOE_LANES void loadTerms(Quad (&piece)[kCount][kPieces], const Desk& desk, int begin, int end, int landed, int tile,
                         int quads) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const Quad* row = reinterpret_cast<const Quad*>(desk.rows[begin + j < end ? begin + j : begin]) + tile;
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      piece[j][u] = Quad{0, 0, 0, 0};
      if (begin + j >= end || tile + u * kLanes >= quads) continue;
      piece[j][u] = kTakes && begin + j < landed ? cuda_landing::load(row + u * kLanes) : row[u * kLanes];
    }
  }
}

// Waits for those terms that are landing words, and empties their places. False: one did not arrive.
template <int kCount, int kPieces, class Wait>
MOE_LANES bool settleTerms(Quad (&piece)[kCount][kPieces], const Desk& desk, int begin, int landed, int tile, int quads,
                           Wait& wait) {
  bool good = true;
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    if (begin + j >= landed) continue;
    auto* row = reinterpret_cast<Quad*>(const_cast<std::uint8_t*>(desk.rows[begin + j])) + tile;
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      if (tile + u * kLanes >= quads) continue;
      if (!hasLanded(piece[j][u])) good = wait(row + u * kLanes, &piece[j][u], begin + j) && good;
      piece[j][u] = fromLanding(piece[j][u]);
      cuda_landing::store(row + u * kLanes, Quad{kNothingLanded, kNothingLanded, kNothingLanded, kNothingLanded});
    }
  }
  return good;
}

template <bool kWeighted, int kCount, int kPieces, class Type>
MOE_LANES void addTerms(Accumulator<Type> (&sum)[kPieces], const Quad (&piece)[kCount][kPieces], const Desk& desk,
                        int begin, int end) {
#pragma unroll
  for (int j = 0; j < kCount; ++j) {
    const float weight = kWeighted && begin + j < end ? desk.weights[begin + j] : 1.0f;
#pragma unroll
    for (int u = 0; u < kPieces; ++u) sum[u].template add<kWeighted>(piece[j][u], weight);
  }
}

template <class Type, class List, int kTerms, int kPieces, class Wait>
MOE_LANES bool reduceTiles(const Desk& desk, int item, int begin, int lane, Wait wait) {
  const int quads = static_cast<int>(desk.jobs[item].bytes / sizeof(Quad)), end = begin + desk.jobs[item].terms;
  const int landed = Wait::kTakes ? begin + desk.landing[item] : 0;
  bool good = true;
#pragma unroll 1
  for (int tile = lane; tile - lane < quads; tile += kLanes * kPieces) {
    Quad piece[kTerms][kPieces];
    loadTerms<Wait::kTakes, kTerms, kPieces>(piece, desk, begin, end, landed, tile, quads);
    if constexpr (Wait::kTakes)
      good = settleTerms<kTerms, kPieces>(piece, desk, begin, landed, tile, quads, wait) && good;
    Accumulator<Type> sum[kPieces];
    addTerms<Weighted<List>, kTerms, kPieces>(sum, piece, desk, begin, end);
    // Fewer rows at once, because the sums occupy registers now.
#pragma unroll 1
    for (int term = begin + kTerms; term < end; term += kMoreTerms) {
      Quad more[kMoreTerms][kPieces];
      loadTerms<Wait::kTakes, kMoreTerms, kPieces>(more, desk, term, end, landed, tile, quads);
      if constexpr (Wait::kTakes) {
        good = settleTerms<kMoreTerms, kPieces>(more, desk, term, landed, tile, quads, wait) && good;
      }
      addTerms<Weighted<List>, kMoreTerms, kPieces>(sum, more, desk, term, end);
    }
    auto* out = reinterpret_cast<Quad*>(desk.jobs[item].out) + tile;
#pragma unroll
    for (int u = 0; u < kPieces; ++u) {
      if (tile + u * kLanes < quads) cuda_landing::put<MadeToLand<List>>(out + u * kLanes, sum[u].rounded());
    }
  }
  return good;
}

// Makes sum `item` of the desk, whose terms begin at `begin`. Each lane has 8 loads of 16 bytes in flight, from 4 rows;
// or 6 from 2 rows, or 7 from one row, if there are no more. Weighted sums always use 4 rows, because the choice made
// them slower (docs/internals/notebook.md).
template <class Type, class List, class Wait>
MOE_LANES bool reduceRow(const Desk& desk, int item, int begin, int lane, Wait wait) {
  if constexpr (!Weighted<List> && !Wait::kTakes) {
    if (desk.jobs[item].terms == 1) return reduceTiles<Type, List, 1, 7>(desk, item, begin, lane, wait);
  }
  if (!Weighted<List> && desk.jobs[item].terms <= 2) {
    return reduceTiles<Type, List, 2, 3>(desk, item, begin, lane, wait);
  }
  return reduceTiles<Type, List, 4, 2>(desk, item, begin, lane, wait);
}

}  // namespace moe::cuda_sums
