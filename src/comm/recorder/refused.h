// What a rank says when it takes part in a call with a refusal instead of its arguments (moeRefused). To the steps it
// is an argument that cannot be: an expert id, or terms like nobody else's; the host knows them again, and says what
// they stand for (failure_text.cc). Decision 0095.
#pragma once

#include <array>

#include "device/view/failure.h"
#include "device/view/terms.h"

namespace moe {

// The expert id of such a route. No slip of a caller makes it.
inline constexpr std::int32_t kRefusedId = INT32_MIN + 0x4d4f45;
// What the step reads as the route's entries, and as a row: of the most entries of a token, in either index type.
inline constexpr std::size_t kRefusedIdsBytes = 32 * sizeof(std::int64_t);
// Fewer rows than an output or a combine's rows can hold: so too few, however few come.
inline constexpr std::int64_t kRefusedRows = -1;

// A cast and a wire format that no other rank has, and a size of this rank's own: when several ranks refuse, they
// differ from each other too.
inline constexpr std::uint64_t kNoSuchCast = 15, kNoSuchWire = 15;
inline std::uint64_t refusedDispatchTerms(int rank) {
  return dispatch_terms::kCast.packed(kNoSuchCast) | dispatch_terms::kHidden.packed(rank + 1);
}
inline std::uint32_t refusedCombineTerms(int rank) {
  return static_cast<std::uint32_t>(combine_terms::kWire.packed(kNoSuchWire) | combine_terms::kPieces.packed(rank + 1));
}

inline bool saysRefused(Phase phase, std::int64_t terms) {
  const auto word = static_cast<std::uint64_t>(terms);
  const bool combines = phase == Phase::combineRows || phase == Phase::combineRails;
  return combines ? combine_terms::kWire.of(word) == kNoSuchWire : dispatch_terms::kCast.of(word) == kNoSuchCast;
}

// The rank that has refused a call, if that is the fault, else -1. `rank`: the one whose handle keeps the fault.
inline int refusingRank(const Failure& f, int rank) {
  switch (f.fault) {
    case Fault::badIndex:
      return f.actual == kRefusedId ? f.peer : -1;
    case Fault::capacity:
      return f.expected == kRefusedRows ? f.peer : -1;
    case Fault::disagreement:
      if (f.phase == Phase::none || f.phase == Phase::routeCounts || f.phase == Phase::routeHeaders) return -1;
      if (saysRefused(f.phase, f.expected)) return rank;
      return saysRefused(f.phase, f.actual) ? f.peer : -1;
    default:
      return -1;
  }
}

}  // namespace moe
