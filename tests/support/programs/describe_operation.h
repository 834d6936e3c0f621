// The step that describes a route, as an operation of a program: it may come at any time after the route.
#pragma once

#include "support/programs/operations.h"

namespace moe::test {

struct DescribeCase {
  std::uint64_t seed = 1;
  int padding = 0;  // PadBits
  int spareRows = 0;
  bool globalIds = false;
  int invalidId = -1;
  int lackingRows = 0;  // if the handle has a fault, the arrays have this many rows less than the route brings
};

class DescribeOperation : public Operation {
 public:
  DescribeOperation(TestComm& comm, TestHandle& handle, std::shared_ptr<const ReferenceRoute> route,
                    const DescribeCase& config, std::string name);
  void start(int rank, Report& report) override;
  StepParams params(int rank, int phases) override;
  void finish(int rank, Report& report) override;

 private:
  enum Array { kRanges, kExperts, kArrays };
  bool wants(int rank, Array array) const;
  std::int64_t rows(int rank) const;
  std::vector<GuardedBytes> arraysFor(int rank) const;
  int idBase(int rank) const { return config_.globalIds ? firstExpert(route_->config, rank) : 0; }

  std::shared_ptr<const ReferenceRoute> route_;
  DescribeCase config_;
  std::vector<std::vector<GuardedBytes>> ranks_;  // [nranks][kArrays]
};

}  // namespace moe::test
