// moe_perf --soak: very many verified iterations on one communicator, through handles of ever new shapes. Nothing is
// timed. It looks for what happens once in many thousands.
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

// The same on every rank, but for the time.
struct SoakResult {
  Machine machine;
  int iterations = 0;
  int llIterations = 0;  // of these
  int shapes = 0;
  std::vector<std::string> wrongShapes;
  Verdict verdict;
  double seconds = 0;
};

// Collective. `say` takes a sentence now and then, and about each shape that went wrong. Throws std::runtime_error,
// with the shape, if a call or the communicator fails.
SoakResult runSoak(const Options& limits, Device& device, moeComm_t comm, Group& group,
                   const std::function<void(const std::string&)>& say);

}  // namespace moe::perf
