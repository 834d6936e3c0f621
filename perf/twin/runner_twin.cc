// --twin: the runner's passes in which dispatches are the twin's.
#include "perf/moe_perf/runner.h"

namespace moe::perf {
namespace {

constexpr int kTwinMarks = 4;

}  // namespace

void Runner::makeTwinSteps() {
  const auto add = [this](std::vector<Step>& steps, const Step& record) {
    steps.push_back(exchange_.makeStep([this, record] {
      seat_.useTwin(true);
      record();
      seat_.useTwin(false);
    }));
  };
  for (int i = 0; i < kVersions; ++i) {
    add(twinVerifiedSteps_, [this, i] { exchange_.iterate(i, 1); });
    add(twinDispatchSteps_, chained([this, i] { exchange_.dispatch(i); }));
  }
}

// Half of the iterations are mixed: ranks that run the twin and ranks that run the library's kernel must get along.
void Runner::twinVerifiedPass(const std::function<void(const std::string&)>& progress) {
  for (int i = 0; i < options_.iters; ++i) {
    const int round = i / kVersions;
    const bool mixed = round % 2 == 1, twin = !mixed || (group_.rank() + round / 2) % 2 == 0;
    (twin ? twinVerifiedSteps_ : verifiedSteps_)[static_cast<std::size_t>(i % kVersions)]();
    progress("verifying iteration " + std::to_string(i + 1) + "/" + std::to_string(options_.iters) + " of the twin");
  }
  exchange_.settle();
}

// The kernels take turns, and in being the first.
void Runner::twinTimedPass(CaseResult& result) {
  int version = 0;
  for (int i = -options_.warmup; i < options_.timedIterations(); ++i) {
    version = (i + options_.warmup) % kVersions;
    const auto index = static_cast<std::size_t>(version);
    routeSteps_[index]();
    for (int turn = 0; turn < 2; ++turn) {
      const int which = (i + options_.warmup + turn) % 2;
      if (i >= 0) device_.mark(i * kTwinMarks + 2 * which);
      (which == 0 ? dispatchSteps_ : twinDispatchSteps_)[index]();
      if (i >= 0) device_.mark(i * kTwinMarks + 2 * which + 1);
    }
  }
  exchange_.settle();
  result.twin =
      TwinTimes{ofOne(group_.slowest(samples(kTwinMarks, 0, 1))), ofOne(group_.slowest(samples(kTwinMarks, 2, 3)))};
  twinDispatchSteps_[static_cast<std::size_t>(version)]();
  exchange_.settle();
  exchange_.setIteration(kTimedIteration + static_cast<std::uint32_t>(version));
  exchange_.verifyDispatch(version, 1);
  letPeersGoOn();
}

}  // namespace moe::perf
