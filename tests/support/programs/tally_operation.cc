#include "support/programs/tally_operation.h"

#include <algorithm>

#include "support/base/index.h"

namespace moe::test {

TallyOperation::TallyOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route,
                               std::shared_ptr<std::vector<Counters>> counters, std::string name)
    : Operation(comm, handle, std::move(name)),
      route_(std::move(route)),
      counters_(std::move(counters)),
      expected_(at(comm.nranks())) {
  counters_->resize(at(comm.nranks()));
}

void TallyOperation::start(int rank, Report&) {
  Counters& own = (*counters_)[at(rank)];
  const auto n = at(comm_.nranks()), experts = at(expertCount(route_->config, rank));
  for (auto* counter : {&own.rowsPerRank, &own.waitNs, &own.lateSteps, &own.callWaitNs}) counter->resize(n);
  own.rowsPerExpert.resize(experts);
  own.callRows.resize(experts);
  expectCounts(rank);
}

// The counters must have these values then.
void TallyOperation::expectCounts(int rank) {
  Counters& then = expected_[at(rank)] = (*counters_)[at(rank)];
  const Arrivals& arrivals = route_->arrivals[at(rank)];
  const bool nothing = fault_.at(rank);
  for (std::size_t e = 0; e < then.rowsPerExpert.size() && !nothing; ++e) {
    then.rowsPerExpert[e] += arrivals.rowsPerExpert[e];
    then.callRows[e] += arrivals.rowsPerExpert[e];
  }
  std::vector<std::uint64_t> waits(handle_.waits(rank), handle_.waits(rank) + comm_.nranks());
  for (std::size_t r = 0; r < waits.size(); ++r) {
    then.rowsPerRank[r] += nothing ? 0 : arrivals.rowsPerRank[r];
    then.waitNs[r] += static_cast<std::int64_t>(waits[r]);
    then.callWaitNs[r] += static_cast<std::int64_t>(waits[r]);
  }
  waits[at(rank)] = 0;  // a rank is not late for itself
  const auto last = std::max_element(waits.begin(), waits.end());
  const auto lateRank = at(last - waits.begin());
  const std::uint64_t longest = *last;
  *last = 0;
  if (longest > *std::max_element(waits.begin(), waits.end()) + 50000) ++then.lateSteps[lateRank];
}

StepParams TallyOperation::params(int rank, int phases) {
  Counters& own = (*counters_)[at(rank)];
  StepParams p = emptyParams(rank, phases);
  p.tally = {own.rowsPerExpert.data(), own.rowsPerRank.data(), own.waitNs.data(),
             own.lateSteps.data(),     own.callRows.data(),    own.callWaitNs.data()};
  return p;
}

void TallyOperation::finish(int rank, Report& report) {
  if (!((*counters_)[at(rank)] == expected_[at(rank)])) report.add(rank, name_ + ": the counters are wrong");
  const std::uint64_t* waits = handle_.waits(rank);
  if (std::any_of(waits, waits + comm_.nranks(), [](std::uint64_t ns) { return ns != 0; }))
    report.add(rank, name_ + ": waits are left over");
}

}  // namespace moe::test
