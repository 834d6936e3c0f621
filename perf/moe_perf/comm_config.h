// The communicator that a run needs: how much of everything its cases, or its soak, take at most.
#pragma once

#include "moecomm.h"
#include "perf/moe_perf/options.h"

namespace moe::perf {

moeConfig_t makeConfig(const Options& options, int nranks, int localRank);

}  // namespace moe::perf
