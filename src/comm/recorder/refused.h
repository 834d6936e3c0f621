// The values by which a rank takes part in a call with a refusal instead of its arguments (moeRefused). To steps they
// are an invalid argument: an expert id, or terms that no other rank has. The host recognises them and says what they
// mean (failure_text.cc). Decision 0095.
#pragma once

#include <array>

#include "device/view/failure.h"
#include "device/view/terms.h"

namespace moe {

// The expert id of a refused route. A caller does not pass it by mistake.
inline constexpr std::int32_t kRefusedId = INT32_MIN + 0x4d4f45;
// The bytes that the step reads as the route's entries, and as a row: the most entries of a token, in either index
// type.
inline constexpr std::size_t kRefusedIdsBytes = 32 * sizeof(std::int64_t);
// The number of rows that a refusing rank states for its output, or for the rows of its combine. It is below 0, so it
// is too small even if no rows come.
inline constexpr std::int64_t kRefusedRows = -1;

// A cast and a wire format that no other rank has. They go with a size of this rank's own, so that several ranks that
// refuse differ from each other too.
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

// The rank that has refused a call, if this is the fault, else -1. `rank`: the rank whose handle keeps the fault.
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
