// What a rank must hold, as far as it grows with the number of ranks: by the library's own layouts and choices.
#pragma once

#include <cstdint>

#include "perf/model/machine.h"

namespace moe::model {

struct Footprint {
  std::uint64_t llWindow;
  std::uint64_t htWindow;           // with the default staging: a row for each token of each rank
  std::uint64_t htWindowUnstaged;   // stagingRows = -1: outputs are window memory; rails remain
  std::uint64_t htHandle;           // private memory of one handle for all HT tokens
  std::uint64_t routeCountsArrive;  // counts that every route brings from all other ranks
  std::int64_t queuePairs;          // to every rank of the other domains
  std::uint64_t queueBytes;         // of their send queues, posted to by steps
};

// Of a communicator for both modes: `ll` and `ht` differ in their tokens alone.
Footprint footprintOf(const Workload& ll, const Workload& ht, int domainRanks);

}  // namespace moe::model
