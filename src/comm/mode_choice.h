// Chooses the mode of a handle that leaves it to the library (moeModeAuto). It is pure arithmetic, with all its numbers
// here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/view/views.h"
#include "moecomm.h"

namespace moe {

// LL is taken if one rank sends at most this many bytes in a dispatch. On GPUs LL pays for every byte: it has no bulk
// copies, and rows that do not stay in their slots are copied once more. HT pays for the exchange of outputs before the
// first byte.
//
// GPUs, 2 ranks of one domain, rows of 14336 bytes, us of a pair, LL / HT:
//   FLAT          26.2 / 30.8 at 128 tokens, 40.7 / 41.6 at 256, 54.6 / 53.2 at 384, 67.9 / 65.9 at 512
//   RANK_MAJOR    57.8 / 65.8 at 512, in its slots
//   EXPERT_MAJOR  33.0 / 96.7 at 128, 93.7 / 187.6 at 512 (512 tokens are 14 MiB here)
// At 4 ranks, LL RANK_MAJOR takes 43.6 and 136.7 us at 128 and 512, and HT FLAT 1000 at 4096. So LL is taken as far as
// it was measured: 512 tokens of 4 ranks (28 MiB).
//
// Host backend: a copy costs as much as crossing, and LL makes one more. Where a token has one row, HT wins from the
// first token on. HT of rows per expert goes in waves, which cost more than they hide while there are few rows. Rows of
// 4096 bytes, 16 processors, us of a pair, HT / LL:
//   FLAT, 2 ranks          4.6 / 6.8 at 1 token, 12.1 / 27.4 at 8, 131 / 308 at 128
//   FLAT, 4 ranks          6.5 / 9.8, 17.6 / 40.0, 128 / 332
//   EXPERT_MAJOR, 2 ranks  12.6 / 8.2 at 1 token, 66.5 / 62.4 at 16, 134 / 142 at 32
//   EXPERT_MAJOR, 4 ranks  19.4 / 12.0 at 1 token, 55.6 / 54.6 at 8, 93.3 / 100.6 at 16
//   FLAT over TCP          100 / 60 at 32, 250 / 245 at 128, 1000 / 1090 at 512 (2 ranks, rows of 2048 bytes)
//                          432 / 448 at 64, 860 / 910 at 128, 1870 / 2845 at 256 (rows of 8192 bytes)
struct LowLatencyLimit {
  Layout layout;
  struct Bytes {
    std::int64_t oneDomain, severalDomains;
  } onGpus, onHost;
};
inline constexpr std::int64_t kKibibyte = 1 << 10, kMebibyte = 1 << 20;
inline constexpr LowLatencyLimit kLowLatencyLimits[] = {
    {Layout::flat, {16 * kMebibyte, 16 * kMebibyte}, {0, kMebibyte}},
    {Layout::expertMajor, {32 * kMebibyte, 16 * kMebibyte}, {128 * kKibibyte, 2 * kMebibyte}},
    {Layout::expertMajorPadded, {32 * kMebibyte, 16 * kMebibyte}, {128 * kKibibyte, 2 * kMebibyte}},
    {Layout::rankMajor, {32 * kMebibyte, 16 * kMebibyte}, {0, kMebibyte}},
};
inline constexpr int kRanksOfToken = 8;  // a token rarely goes to more

// moeModeHt or moeModeLl, for a communicator that has both. `rowBytesMax` and `llTokensMax` are the communicator's,
// because a handle does not know its rows yet. `host`: for the host backend.
constexpr std::int32_t chooseMode(int tokensMax, Layout layout, int rowBytesMax, int nranks, int domains,
                                  int llTokensMax, bool host) {
  if (tokensMax <= 0 || tokensMax > llTokensMax) return moeModeHt;
  const std::int64_t bytes = std::int64_t{tokensMax} * std::min(nranks, kRanksOfToken) * rowBytesMax;
  for (const LowLatencyLimit& limit : kLowLatencyLimits) {
    if (limit.layout != layout) continue;
    const LowLatencyLimit::Bytes& most = host ? limit.onHost : limit.onGpus;
    return bytes <= (domains > 1 ? most.severalDomains : most.oneDomain) ? moeModeLl : moeModeHt;
  }
  return moeModeHt;
}

}  // namespace moe
