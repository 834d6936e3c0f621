// Statistics: what operations add up, and the steps that follow an operation.
#include "comm/handle/argument_checks.h"
#include "comm/handle/handle.h"

namespace moe {

static_assert(MOE_LATE_NS == kLateNs);

void Handle::makeCounters(bool statistics) {
  const std::int64_t n = room_.view.nranks, experts = shape_.map.count(room_.view.rank);
  const std::int64_t words = statistics ? 5 * n + experts : n;
  counterMemory_ = comm_.backend().allocatePrivate(static_cast<std::size_t>(words) * 8, comm_.allocator());
  counters_.waits = reinterpret_cast<std::uint64_t*>(counterMemory_.get());
  if (!statistics) return;
  auto* next = reinterpret_cast<std::int64_t*>(counterMemory_.get());
  for (std::int64_t** counter : {&counters_.rowsPerRank, &counters_.dispatchWaitNs, &counters_.combineWaitNs,
                                 &counters_.lateSteps, &counters_.rowsPerExpert}) {
    next += n;
    *counter = next;
  }
}

moeStatistics_t Handle::statistics() const {
  if (!keepsStatistics()) {
    throw Error(moeInvalidUsage, "moeHandleGetStatistics: the handle was made without config.statistics");
  }
  moeStatistics_t statistics = MOE_STATISTICS_INITIALIZER;
  statistics.rowsPerExpert = counters_.rowsPerExpert;
  statistics.rowsPerRank = counters_.rowsPerRank;
  statistics.dispatchWaitNs = counters_.dispatchWaitNs;
  statistics.combineWaitNs = counters_.combineWaitNs;
  statistics.lateSteps = counters_.lateSteps;
  return statistics;
}

void Handle::count(Pending kind, const CallCounters& call, StepParams* params) const {
  requireAligned(call.rows, "args.cumulativeRows", alignof(std::int32_t));
  requireAligned(call.waitNs, "args.cumulativeWaitNs", alignof(std::int64_t));
  const bool dispatch = kind == Pending::dispatch;
  TallyArgs& tally = params->tally;
  tally.callRows = call.rows;
  tally.callWaitNs = call.waitNs;
  if (dispatch) tally.rowsPerExpert = counters_.rowsPerExpert, tally.rowsPerRank = counters_.rowsPerRank;
  tally.waitNs = dispatch ? counters_.dispatchWaitNs : counters_.combineWaitNs;
  tally.lateSteps = counters_.lateSteps;
  if (keepsStatistics() || call.waitNs != nullptr) params->comm.waits = counters_.waits;
}

void Handle::follow(Pending kind, const StepParams& p, moeStream_t stream) {
  if (kind == Pending::dispatch) describeArrived(p, stream);
  if (p.comm.waits == nullptr && p.tally.callRows == nullptr) return;
  launch(Step::tally, p, comm_.backend().shapeFor({Step::tally, shape_.tokensMax, 1, 0, 0}), stream);
}

}  // namespace moe
