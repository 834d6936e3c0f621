// The communicator that a run needs, sized for the largest of its cases, or for its soak.
#pragma once

#include "moecomm.h"
#include "perf/moe_perf/options.h"

namespace moe::perf {

moeConfig_t makeConfig(const Options& options, int nranks, int localRank);

}  // namespace moe::perf
