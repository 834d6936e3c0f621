// Which token goes to which rank. Every rank can compute the routes of all ranks from the seed.
#pragma once

#include <cstdint>
#include <vector>

#include "perf/moe_perf/options.h"

namespace moe::perf {

// Experts are spread as moeHandleConfig_t says: in order, with one more on each of the first experts % nranks ranks.
struct Experts {
  int count;
  int nranks;

  int first(int rank) const;
  int onRank(int rank) const { return first(rank + 1) - first(rank); }
  int rankOf(int expert) const;
};

// One rank's route in the form that moeRoute takes: [tokens][topk].
struct Route {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

// `seed` differs between sessions and route versions. Weights are multiples of 1/8 up to 1. `step`: of the file with
// routes, if there is one.
Route makeRoute(const Options& options, std::uint64_t seed, int nranks, int source, int tokens, std::uint64_t step = 0);

}  // namespace moe::perf
