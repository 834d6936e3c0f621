// The memory that a rank needs, as far as it grows with the number of ranks. Computed with the library's own layouts
// and choices.
#pragma once

#include <cstdint>

#include "perf/model/machine.h"

namespace moe::model {

struct Footprint {
  std::uint64_t llWindow;
  std::uint64_t htWindow;           // with the default staging: one row for each token of each rank
  std::uint64_t htWindowUnstaged;   // stagingRows = -1: outputs are window memory, and only rails are staged
  std::uint64_t htHandle;           // private memory of one handle for all HT tokens
  std::uint64_t routeCountsArrive;  // counts that every route receives from all other ranks
  std::int64_t queuePairs;          // to all ranks of the other domains
  std::uint64_t queueBytes;         // the send queues of these pairs, to which steps post
};

// The footprint of a communicator for both modes. `ll` and `ht` differ only in their tokens.
Footprint footprintOf(const Workload& ll, const Workload& ht, int domainRanks);

}  // namespace moe::model
