// The alpha-beta model: what one rank sends in one operation, and how long that takes. All resources work in parallel
// at their full rates. So the time is that of the slowest resource, plus the steps that must happen one after the
// other.
#pragma once

#include "perf/model/machine.h"

namespace moe::model {

// How often a row is sent.
enum class Copies : int {
  perExpert,  // DeepEP V1 and NCCL EP, LL
  perRank,    // moecomm, LL
  perDomain,  // all HT: over the rail once, then forwarded
};

enum class Operation : int { dispatch, combine };

enum class Bound : int { latency, nvlink, rail, posting };
const char* nameOf(Bound bound);

// The traffic that one rank sends. On average as much arrives. Rows are expectations, not whole numbers.
struct Traffic {
  double railRows = 0;
  double nvlinkRows = 0;
  double words = 0;  // messages on the rail that carry no row: flags, and sizes that are compared
  double peers = 0;  // ranks that receive messages

  double messages() const { return railRows + words; }
};
Traffic trafficOf(const Workload& workload, int domainRanks, Copies copies, Operation operation);

struct Estimate {
  Traffic traffic;
  double railBytes = 0, nvlinkBytes = 0;
  double latencyUs = 0, railUs = 0, nvlinkUs = 0, postUs = 0;
  Bound bound = Bound::latency;  // the largest of the four
  double us = 0;
};
// For the operation's row type or another one.
Estimate estimate(const Machine& machine, const Workload& workload, Copies copies, Operation operation);
Estimate estimate(const Machine& machine, const Workload& workload, Copies copies, Operation operation, RowType row);

}  // namespace moe::model
