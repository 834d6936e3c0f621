// Chooses the mode of a handle that leaves it to the library (moeModeAuto). It is pure arithmetic. Its numbers are in
// comm/config/mode_limits.h.
#pragma once

#include <algorithm>
#include <cstdint>

#include "comm/config/mode_limits.h"
#include "moecomm.h"

namespace moe {

// The processors of a host: more than its ranks, as many, or fewer.
enum class Processors { spare, full, shared };

// The scarcer of `other` and the supply of a host with `ranks` ranks on `processors` processors (0: not known).
constexpr Processors scarcer(Processors other, int ranks, int processors) {
  if (processors == 0 || processors > ranks) return other;
  if (processors < ranks) return Processors::shared;
  return other == Processors::shared ? other : Processors::full;
}

// `host`: for the host backend, whose ranks have these `processors`.
constexpr ModeSetup setupOf(bool host, int domains, Processors processors) {
  if (!host) return domains > 1 ? ModeSetup::gpuDomains : ModeSetup::gpu;
  if (domains > 1) return ModeSetup::hostDomains;
  if (processors == Processors::spare) return ModeSetup::host;
  return processors == Processors::full ? ModeSetup::hostFull : ModeSetup::hostShared;
}

// What one rank sends in a dispatch, as far as that is known before there are rows.
constexpr std::int64_t bytesOfDispatch(int tokens, int nranks, int rowBytesMax) {
  return std::int64_t{tokens} * std::min(nranks, kRanksOfToken) * rowBytesMax;
}

// moeModeHt or moeModeLl, for a communicator that has both. `rowBytesMax` and `llTokensMax` are the communicator's,
// because a handle does not know its rows yet.
constexpr std::int32_t chooseMode(const ModeLimit& limit, int tokensMax, int rowBytesMax, int nranks, int llTokensMax) {
  if (tokensMax <= 0 || tokensMax > std::min(llTokensMax, limit.tokens)) return moeModeHt;
  return bytesOfDispatch(tokensMax, nranks, rowBytesMax) <= limit.bytes ? moeModeLl : moeModeHt;
}

}  // namespace moe
