// moe_perf --soak: very many verified iterations on one communicator, through handles whose shapes change all the time.
// Nothing is timed. It looks for defects that show once in many thousands of iterations.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "moecomm.h"
#include "perf/moe_perf/exchange.h"
#include "perf/moe_perf/group.h"
#include "perf/moe_perf/options.h"
#include "perf/payload/device.h"

namespace moe::perf {

// The same on every rank, except for the time.
struct SoakResult {
  Machine machine;
  int iterations = 0;
  int llIterations = 0;  // included in the iterations
  int faults = 0;        // iterations with a fault, also included
  int shapes = 0;
  std::vector<std::string> wrongShapes;
  Verdict verdict;
  double seconds = 0;
};

// Collective. `say` is called with a sentence now and then, and for each shape that went wrong. Throws
// std::runtime_error, with the shape, if a call or the communicator fails.
SoakResult runSoak(const Options& limits, Device& device, moeComm_t comm, Group& group,
                   const std::function<void(const std::string&)>& say);

}  // namespace moe::perf
