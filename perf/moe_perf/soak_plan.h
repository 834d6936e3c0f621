// What moe_perf --soak runs: shapes that are drawn from the seed, the same ones on every rank.
#pragma once

#include <string>
#include <vector>

#include "moecomm.h"
#include "perf/moe_perf/options.h"
#include "perf/moe_perf/plan.h"

namespace moe::perf {

struct SoakShape {
  Options options;  // of this shape alone
  Load load;
  int iterations = 0;
  bool secondSet = false;  // LL: the first set of slots belongs to a handle that was made before

  std::string describe() const;
};

// Together limits.soak iterations. Of `limits` the sizes are the largest that occur, `mode` restricts the modes, and
// the backend, the multiprocessors and --graph hold for every shape.
std::vector<SoakShape> drawSoak(const Options& limits, int nranks);

// Makes the communicator large enough for every shape.
void sizeForSoak(const Options& limits, int nranks, moeConfig_t& config);

}  // namespace moe::perf
