// The host backend with some additions: it notes the calls that it gets, and when a test wants it, its launches fail,
// or steps seem to be far from the host's memory.
#pragma once

#include <vector>

#include "unit/forwarding_backend.h"

namespace moe::test {

// Must outlive the backend that it belongs to.
struct Spy {
  bool launchesFail = false;
  bool dispatchesFail = false;
  bool overlaps = false;
  bool captures = false;
  bool isFar = false;
  int lateCopies = 0;  // the next so many copies bring nothing
  int copies = 0;
  std::vector<Workload> asked;  // the workloads that a launch shape was asked for
  std::vector<Step> launched;
  StepParams latest{};  // parameters of the latest launched step
};

class SpyBackend final : public ForwardingBackend {
 public:
  explicit SpyBackend(Spy& spy) : spy_(spy) {}

  bool overlapsSteps() const noexcept override { return spy_.overlaps; }
  bool isFarFromHost() const noexcept override { return spy_.isFar; }
  bool bringWords(std::uint64_t* to, const std::uint64_t* from, std::size_t count, Deadline end) override {
    ++spy_.copies;
    if (spy_.lateCopies > 0) {
      --spy_.lateCopies;
      return false;
    }
    return ForwardingBackend::bringWords(to, from, count, end);
  }
  LaunchShape shapeFor(const Workload& work) const noexcept override {
    spy_.asked.push_back(work);
    return ForwardingBackend::shapeFor(work);
  }
  moeResult_t launch(Step step, const StepParams& params, const LaunchShape& shape, moeStream_t stream,
                     std::string* what) noexcept override {
    if (spy_.launchesFail || (spy_.dispatchesFail && rowOf(step).kind == StepKind::dispatch)) {
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
