// The settings that must be the same on all ranks. Ranks compare them when they join (comm_init.cc), and a survivor
// compares those of a newcomer (replace.cc).
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <string>

#include "comm/config/config.h"
#include "moecomm.h"

namespace moe {

// Names for the sentences, and values in the same order.
inline constexpr const char* kAgreedNames[] = {
    "library version", "backend",    "modes",       "tokensMax",  "llTokensMax", "rowBytesMax", "sideBytesMax",
    "topkMax",         "expertsMax", "stagingRows", "domainSize", "transport",   "llSets",      "stagingAreas"};
using AgreedValues = std::array<std::int64_t, std::size(kAgreedNames)>;

inline AgreedValues agreedValues(const Config& c, int backend) {
  return {MOE_VERSION_CODE, backend,      c.modes,       c.tokensMax,  c.llTokensMax, c.rowBytesMax, c.sideBytesMax,
          c.topkMax,        c.expertsMax, c.stagingRows, c.domainSize, c.transport,   c.llSets,      c.stagingAreas};
}

// Empty if they agree.
inline std::string disagreement(const AgreedValues& first, int firstRank, const AgreedValues& other, int rank) {
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (first[i] == other[i]) continue;
    return fmt::format("moeCommInit: ranks disagree: {} is {} on rank {} and {} on rank {}", kAgreedNames[i], first[i],
                       firstRank, other[i], rank);
  }
  return {};
}

}  // namespace moe
