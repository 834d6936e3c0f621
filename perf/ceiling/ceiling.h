// The best that the machine can do for a case (moe_perf --ceiling): kernels that move the same rows between the same
// ranks and do nothing else. They have no headers, flags, acknowledgements or failures, so no library can be faster.
// Results are reported as shares of these ceilings. GPUs only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/moe_perf/group.h"
#include "perf/moe_perf/options.h"
#include "perf/moe_perf/plan.h"
#include "perf/payload/device.h"

namespace moe::perf {

// Multiprocessors that the library uses for an operation; 0: no GPU.
struct Multiprocessors {
  int dispatch = 0;
  int combine = 0;
};

// The fastest of the variants that were tried.
struct CeilingTime {
  std::string variant;
  std::vector<double> times;  // microseconds of one operation on the slowest rank, one per replay of a graph
};

// Times of kernels that move rows, with the number of multiprocessors that was asked for, or with the fastest one.
struct RowCeilings {
  // Dispatch: each token's row goes once to each other rank that needs it. Its destinations are looked up beside its
  // first loads, 8 bytes for each rank, as a dispatch that routes looks expert ids up.
  CeilingTime push;
  CeilingTime pushBack;  // combine: rows from other ranks go to their slots at the owners
  CeilingTime pull;      // combine, the other way: the owners read the same rows into their own slots
  CeilingTime pullSums;  // the owners read and sum the rows. No ceiling: it leaves out the sum at the experts' rank
};

struct Ceilings : RowCeilings {
  RowCeilings atChoice;   // --sms 0: with as many multiprocessors as the library used; else the same
  CeilingTime roundTrip;  // a flag from rank 0 to rank 1 and its answer
  CeilingTime barrier;    // a kernel in which every rank sets a flag at every other rank and waits for theirs
};

struct CeilingCase {
  const Options& options;
  Device& device;
  int gpu;  // CUDA ordinal
  Group& group;
  int tokens;
  std::vector<const Plan*> plans;  // launches alternate between them, as the operations of the case do
  Multiprocessors multiprocessors;
};

// Collective. Allocates and frees its own memory. Throws std::runtime_error, also if a kernel moved wrong bytes.
Ceilings measureCeilings(const CeilingCase& which, const std::function<void(const std::string&)>& progress);

}  // namespace moe::perf
