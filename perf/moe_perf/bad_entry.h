// One entry of a route that the library refuses on all ranks, for the soak's iterations with a fault.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/moe_perf/options.h"
#include "perf/moe_perf/plan.h"

namespace moe::perf {

struct BadEntry {
  int rank = -1;            // the rank whose route has it; -1: no rank sends a token
  int token = 0;            // of that rank
  int k = 0;                // place in the token's top-k
  std::int32_t expert = 0;  // no expert; or one that the entry before names too

  bool exists() const { return rank >= 0; }
  // The expert ids [tokens][topk] of that rank, with this entry.
  std::vector<std::int32_t> putInto(std::vector<std::int32_t> experts, int topk) const;
};

// The same on every rank. `seed` is the session's.
BadEntry drawBadEntry(const Options& options, std::uint64_t seed, const Load& load, int version);

}  // namespace moe::perf
