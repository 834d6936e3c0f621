// The sums that operations of a handle update, for callers who ask for them: moeStatistics_t, and the arrays of single
// calls.
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
  // The statistics of a handle with `experts` local experts. `kept`: config.statistics. Without it, single calls may
  // still have their own arrays.
  Statistics(Backend& backend, const Allocator& allocator, int nranks, int experts, bool kept);

  // Bytes of private memory.
  static std::size_t bytes(int nranks, int experts, bool kept) {
    return static_cast<std::size_t>(kept ? 5 * nranks + experts : nranks) * sizeof(std::int64_t);
  }

  // Throws moeInvalidUsage if none are kept.
  moeStatistics_t all() const;
  // Sets the sums that an operation updates, and whether its waits are timed.
  void count(OperationKind kind, const CallCounters& call, StepParams* params) const;
  // The same for a route, which only waits.
  void timeRoute(StepParams* params) const {
    if (kept()) params->comm.waits = waits_;
  }

 private:
  bool kept() const { return lateSteps_ != nullptr; }

  Memory memory_;
  std::uint64_t* waits_ = nullptr;  // how long the running step has waited for each rank
  // NULL in a handle that keeps no statistics.
  std::int64_t* rowsPerExpert_ = nullptr;
  std::int64_t* rowsPerRank_ = nullptr;
  std::int64_t* dispatchWaitNs_ = nullptr;
  std::int64_t* combineWaitNs_ = nullptr;
  std::int64_t* lateSteps_ = nullptr;
};

}  // namespace moe
