// What the operations of a handle add up, for those who ask: moeStatistics_t, and the arrays of single calls.
#pragma once

#include "backend/backend.h"
#include "comm/handle/operation.h"
#include "moecomm.h"

namespace moe {

// A call's own arrays. NULL: not asked for.
struct CallCounters {
  std::int32_t* rows;
  std::int64_t* waitNs;
};

class Statistics {
 public:
  // Of a handle with `experts` local experts. `kept`: config.statistics. Without, calls may still count for themselves.
  Statistics(Backend& backend, const Allocator& allocator, int nranks, int experts, bool kept);

  // Throws moeInvalidUsage if none are kept.
  moeStatistics_t all() const;
  // Says what an operation adds to, and whether its waits are timed.
  void count(OperationKind kind, const CallCounters& call, StepParams* params) const;
  // The same of a route, which only waits.
  void timeRoute(StepParams* params) const {
    if (kept()) params->comm.waits = waits_;
  }

 private:
  bool kept() const { return lateSteps_ != nullptr; }

  Memory memory_;
  std::uint64_t* waits_ = nullptr;  // how long the step that runs has waited for each rank
  // Of a handle that keeps none: NULL.
  std::int64_t* rowsPerExpert_ = nullptr;
  std::int64_t* rowsPerRank_ = nullptr;
  std::int64_t* dispatchWaitNs_ = nullptr;
  std::int64_t* combineWaitNs_ = nullptr;
  std::int64_t* lateSteps_ = nullptr;
};

}  // namespace moe
