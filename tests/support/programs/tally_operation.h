// The step that adds the rows and the waits of an operation to counters, as an operation of a program.
#pragma once

#include "support/programs/operations.h"

namespace moe::test {

// The counters of one rank. A test reads them when the program has ended.
struct Counters {
  std::vector<std::int64_t> rowsPerExpert, rowsPerRank, waitNs, lateSteps, callWaitNs;
  std::vector<std::int32_t> callRows;

  bool operator==(const Counters&) const = default;
};

// The handle asks for waits. Operations that share `counters` add to them.
class TallyOperation : public Operation {
 public:
  TallyOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route,
                 std::shared_ptr<std::vector<Counters>> counters, std::string name);
  void start(int rank, Report& report) override;
  StepParams params(int rank, int phases) override;
  void finish(int rank, Report& report) override;

 private:
  void expectCounts(int rank);

  std::shared_ptr<const ReferenceRoute> route_;
  std::shared_ptr<std::vector<Counters>> counters_;  // [nranks]
  std::vector<Counters> expected_;
};

}  // namespace moe::test
