// Runs one case on one rank: a pass that verifies every iteration, and timed passes whose last results are verified
// too. All ranks run the same steps in the same order.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "moecomm.h"
#include "perf/ceiling/ceiling.h"
#include "perf/moe_perf/exchange.h"
#include "perf/moe_perf/group.h"
#include "perf/moe_perf/options.h"
#include "perf/payload/device.h"

namespace moe::perf {

// Each rank's own median of every operation, in microseconds: [rank].
struct RankMedians {
  std::vector<double> dispatch, combine, pair, step;
};

// The same on every rank.
struct CaseResult {
  int tokens = 0;
  Machine machine;
  Multiprocessors multiprocessors;
  bool choseMultiprocessors = false;  // the library chose, on a GPU
  Verdict verdict;
  // Per iteration, the maximum over the ranks, in microseconds. A sample covers --chain operations in a row.
  std::vector<double> dispatch;
  std::vector<double> combine;
  std::vector<double> pair;         // dispatch and combine on an existing route
  std::vector<double> step;         // with a new route before each
  std::vector<double> memcpyTimes;  // host backend only
  RankMedians ranks;
  // Per rank and iteration, averaged over the ranks and route versions.
  double remoteBytes = 0;
  double logicalBytes = 0;
  double combineRemoteBytes = 0;
  std::optional<Ceilings> ceilings;  // --ceiling
};

class Runner {
 public:
  // Allocates everything. No communication may be in flight on this machine's GPUs.
  Runner(const Options& options, Device& device, moeComm_t comm, Group& group, int tokens);

  // `progress` is called with a sentence now and then.
  CaseResult run(const std::function<void(const std::string&)>& progress);

  // The first session's plan.
  const Plan& plan(int version) const { return exchange_.sessions().front()->plan(version); }

 private:
  using Step = Exchange::Step;

  // Numbers the payloads of the timed passes, above every iteration of the verified pass.
  static constexpr std::uint32_t kTimedIteration = 0x40000000;

  void makeSteps();
  void verifiedPass(const std::function<void(const std::string&)>& progress);
  void prepareTimedPasses();
  void phasePass(CaseResult& result);
  void pairPass(CaseResult& result);
  void verifyLastStep(int version);
  void memcpyPass(CaseResult& result);
  Multiprocessors countMultiprocessors();

  void refillSlots(int version);
  void letPeersGoOn();
  // Runs --chain of them in a row. The sample is their mean.
  Step chained(std::function<void(int)> link) const;
  std::vector<double> ofOne(std::vector<double> chains) const;
  std::vector<double> samples(int markStep, int first, int second);
  std::vector<double> slowestSamples(int markStep, int first, int second, std::vector<double>* rankMedians);
  void addBytes(CaseResult& result) const;

  const Options& options_;
  Device& device_;
  Group& group_;
  int tokens_;
  Checks checks_;
  Exchange exchange_;
  Buffer<std::uint32_t> timedIterations_;  // [version] number of the payload that the timed passes send
  std::vector<Step> verifiedSteps_;        // [version]
  std::vector<Step> sampledSteps_;         // [version]
  std::vector<Step> routeSteps_;           // [version]
  std::vector<Step> dispatchSteps_;        // [source]
  std::vector<Step> combineSteps_;         // [version]
  std::vector<Step> pairSteps_;            // [version]
  std::vector<Step> wholeSteps_;           // [first version] route, dispatch and combine
};

}  // namespace moe::perf
