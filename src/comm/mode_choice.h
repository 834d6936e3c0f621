// The mode of a handle that leaves it to the library (moeModeAuto). Pure arithmetic; all its numbers are here.
#pragma once

#include <algorithm>
#include <cstdint>

#include "device/views.h"
#include "moecomm.h"

namespace moe {

// What LL is taken for: bytes that one rank may send in a dispatch, at most. LL pays for every byte (no bulk copies,
// and rows that do not stay in their slots are copied once more), HT for the exchange of outputs before the first byte.
//
// Measured so far at 4 ranks of one domain, rows of 14336 bytes, a pair: LL RANK_MAJOR 13.2, 14.5, 19.2, 27.0, 43.6 and
// 136.7 us at 1, 8, 32, 64, 128 and 512 tokens; HT FLAT about 1000 us at 4096, and nothing below. So at 512 tokens LL
// costs 0.27 us per token and HT at 4096 costs 0.24, without what it costs to begin: RANK_MAJOR stays LL as far as it
// was measured, 512 tokens of 4 ranks. Other layouts were measured at 128 tokens, and get twice that. Where HT is
// faster at fewer bytes is not known: the next measurement of both modes at 128..4096 tokens fills in this table.
struct LowLatencyLimit {
  Layout layout;
  std::int64_t oneDomain, severalDomains;
};
inline constexpr std::int64_t kMebibyte = 1 << 20;
inline constexpr LowLatencyLimit kLowLatencyLimits[] = {
    {Layout::flat, 16 * kMebibyte, 16 * kMebibyte},
    {Layout::expertMajor, 16 * kMebibyte, 16 * kMebibyte},
    {Layout::expertMajorPadded, 16 * kMebibyte, 16 * kMebibyte},
    {Layout::rankMajor, 32 * kMebibyte, 16 * kMebibyte},
};
inline constexpr int kRanksOfToken = 8;  // a token goes to no more, as a rule

// moeModeHt or moeModeLl, for a communicator that has both. `rowBytesMax` and `llTokensMax` are the communicator's: a
// handle does not know its rows yet.
constexpr std::int32_t chooseMode(int tokensMax, Layout layout, int rowBytesMax, int nranks, int domains,
                                  int llTokensMax) {
  if (tokensMax <= 0 || tokensMax > llTokensMax) return moeModeHt;
  const std::int64_t bytes = std::int64_t{tokensMax} * std::min(nranks, kRanksOfToken) * rowBytesMax;
  for (const LowLatencyLimit& limit : kLowLatencyLimits) {
    if (limit.layout != layout) continue;
    return bytes <= (domains > 1 ? limit.severalDomains : limit.oneDomain) ? moeModeLl : moeModeHt;
  }
  return moeModeHt;
}

}  // namespace moe
