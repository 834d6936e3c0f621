// What a rank must hold, as far as it grows with the number of ranks. Windows are the library's own layout.
#pragma once

#include <cstdint>

#include "machine.h"

namespace moe::model {

inline constexpr int kQueuesPerPeer = 4;  // assumed: one per group of posting warps
inline constexpr int kQueueSlots = 128;   // assumed: work-queue entries of 64 bytes

struct Footprint {
  std::uint64_t llWindow;                    // as laid out today
  std::uint64_t htWindow;                    // as laid out today: a staging row for each token of each rank
  std::uint64_t htWindowByDomain;            // the plan: a staging row for each token of each domain
  std::uint64_t htHandle;                    // private memory of one handle for all HT tokens
  std::uint64_t routeCountsArrive;           // counts that every route brings from all other ranks, as today
  std::int64_t llQueuePairs;                 // to every rank of the other domains
  std::int64_t htQueuePairs;                 // to the ranks of the same rail
  std::uint64_t llQueueBytes, htQueueBytes;  // send queues
};

// Of a communicator for both modes: `ll` and `ht` differ in their tokens alone.
Footprint footprintOf(const Workload& ll, const Workload& ht, int domainRanks);

}  // namespace moe::model
