// The mode of a handle that leaves it to the library (moeModeAuto). Pure arithmetic; all its numbers are here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/view/views.h"
#include "moecomm.h"

namespace moe {

// What LL is taken for: bytes that one rank may send in a dispatch, at most. On GPUs LL pays for every byte (no bulk
// copies, and rows that do not stay in their slots are copied once more), HT for the exchange of outputs before the
// first byte.
//
// Measured at 2 ranks of one domain, rows of 14336 bytes, a pair, LL and HT: FLAT 26.2 and 30.8 us at 128 tokens, 40.7
// and 41.6 at 256, 54.6 and 53.2 at 384, 67.9 and 65.9 at 512; RANK_MAJOR in its slots 57.8 and 65.8 at 512;
// EXPERT_MAJOR 33.0 and 96.7 at 128, 93.7 and 187.6 at 512 (512 tokens are 14 MiB here). At 4 ranks RANK_MAJOR
// takes 43.6 and 136.7 us at 128 and 512, and HT FLAT 1000 at 4096: LL as far as it was measured, 512 tokens of 4 ranks
// (28 MiB). What is above was not measured.
//
// On the host backend a copy costs as much as crossing, and LL makes one more: where a token has one row, HT wins from
// the first token on. HT of rows per expert goes in waves, which cost more there than they hide while there are few
// rows. Rows of 4096 bytes, 16 processors, a pair, HT and LL: FLAT 4.6 and 6.8 us at 1 token, 12.1 and 27.4 at 8, 131
// and 308 at 128 (2 ranks), 6.5 and 9.8, 17.6 and 40.0, 128 and 332 (4 ranks); EXPERT_MAJOR 12.6 and 8.2 at 1 token,
// 66.5 and 62.4 at 16, 134 and 142 at 32 (2 ranks), 19.4 and 12.0 at 1, 55.6 and 54.6 at 8, 93.3 and 100.6 at 16 (4
// ranks).
// Over TCP: FLAT 100 and 60 us at 32 tokens, 250 and 245 at 128, 1000 and 1090 at 512 (2 ranks, rows of 2048 bytes),
// 432 and 448 at 64, 860 and 910 at 128, 1870 and 2845 at 256 (rows of 8192 bytes).
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
inline constexpr int kRanksOfToken = 8;  // a token goes to no more, as a rule

// moeModeHt or moeModeLl, for a communicator that has both. `rowBytesMax` and `llTokensMax` are the communicator's: a
// handle does not know its rows yet. `host`: of the host backend.
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
