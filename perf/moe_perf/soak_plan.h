// The shapes that moe_perf --soak runs. They are drawn from the seed, so every rank draws the same ones.
#pragma once

#include <string>
#include <vector>

#include "moecomm.h"
#include "perf/moe_perf/options.h"
#include "perf/moe_perf/plan.h"

namespace moe::perf {

struct SoakShape {
  Options options;  // for this shape only
  Load load;
  int iterations = 0;
  bool secondSet = false;  // LL: an earlier handle holds the first set of slots

  std::string describe() const;
};

// Shapes with limits.soak iterations in total. The sizes in `limits` are the largest that occur, and `mode` restricts
// the modes. The backend, the multiprocessors and --graph hold for every shape.
std::vector<SoakShape> drawSoak(const Options& limits, int nranks);

// Makes the communicator large enough for every shape.
void sizeForSoak(const Options& limits, int nranks, moeConfig_t& config);

}  // namespace moe::perf
