// The host backend with two additions: it notes the calls that it gets, and its launches fail when a test wants it.
#pragma once

#include <vector>

#include "unit/forwarding_backend.h"

namespace moe::test {

// Must outlive the backend that it belongs to.
struct Spy {
  bool launchesFail = false;
  bool captures = false;
  std::vector<Workload> asked;  // the workloads that a launch shape was asked for
  std::vector<Step> launched;
  StepParams latest{};  // parameters of the latest launched step
};

class SpyBackend final : public ForwardingBackend {
 public:
  explicit SpyBackend(Spy& spy) : spy_(spy) {}

  LaunchShape shapeFor(const Workload& work) const noexcept override {
    spy_.asked.push_back(work);
    return ForwardingBackend::shapeFor(work);
  }
  moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream,
                     std::string* what) noexcept override {
    if (spy_.launchesFail) {
      *what = "the test lets launches fail";
      return moeCudaError;
    }
    spy_.launched.push_back(step);
    spy_.latest = params;
    return ForwardingBackend::launch(step, params, shape, stream, what);
  }
  bool capturing(moeStream_t) const noexcept override { return spy_.captures; }

 private:
  Spy& spy_;
};

}  // namespace moe::test
