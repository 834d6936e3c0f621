#include "comm/handle/statistics.h"

#include "base/error.h"
#include "comm/handle/call_checks.h"

namespace moe {

static_assert(MOE_LATE_NS == kLateNs);

Statistics::Statistics(Backend& backend, const Allocator& allocator, int nranks, int experts, bool kept) {
  memory_ = backend.allocatePrivate(bytes(nranks, experts, kept), allocator);
  waits_ = reinterpret_cast<std::uint64_t*>(memory_.get());
  if (!kept) return;
  auto* next = reinterpret_cast<std::int64_t*>(memory_.get());
  for (std::int64_t** counter : {&rowsPerRank_, &dispatchWaitNs_, &combineWaitNs_, &lateSteps_, &rowsPerExpert_}) {
    next += nranks;
    *counter = next;
  }
}

moeStatistics_t Statistics::all() const {
  if (!kept()) {
    throw Error(moeInvalidUsage, "moeHandleGetStatistics: the handle was made without config.statistics");
  }
  moeStatistics_t statistics = MOE_STATISTICS_INITIALIZER;
  statistics.rowsPerExpert = rowsPerExpert_;
  statistics.rowsPerRank = rowsPerRank_;
  statistics.dispatchWaitNs = dispatchWaitNs_;
  statistics.combineWaitNs = combineWaitNs_;
  statistics.lateSteps = lateSteps_;
  return statistics;
}

void Statistics::count(OperationKind kind, const CallCounters& call, StepParams* params) const {
  const bool dispatch = kind == OperationKind::dispatch;
  requireAligned(call.rows, "args.describe.cumulativeRows", alignof(std::int32_t));
  requireAligned(call.waitNs, dispatch ? "args.describe.cumulativeWaitNs" : "args.cumulativeWaitNs",
                 alignof(std::int64_t));
  TallyArgs& tally = params->tally;
  tally.callRows = call.rows;
  tally.callWaitNs = call.waitNs;
  tally.rowsPerExpert = dispatch ? rowsPerExpert_ : nullptr;
  tally.rowsPerRank = dispatch ? rowsPerRank_ : nullptr;
  tally.waitNs = dispatch ? dispatchWaitNs_ : combineWaitNs_;
  tally.lateSteps = lateSteps_;
  if (kept() || call.waitNs != nullptr) params->comm.waits = waits_;
}

}  // namespace moe
