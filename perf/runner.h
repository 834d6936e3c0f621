// Runs one case on one rank: a pass in which every iteration is verified, and timed passes whose last results are
// verified too. All ranks run the same steps in the same order.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ceiling.h"
#include "device.h"
#include "exchange.h"
#include "group.h"
#include "moecomm.h"
#include "options.h"

namespace moe::perf {

// The same on every rank.
struct CaseResult {
  int tokens = 0;
  Machine machine;
  Verdict verdict;
  // Per iteration, the maximum over the ranks, in microseconds.
  std::vector<double> route;
  std::vector<double> dispatch;
  std::vector<double> combine;
  std::vector<double> pair;
  std::vector<double> memcpyTimes;  // host backend only
  // Per rank and iteration, the mean over the ranks and route versions.
  double remoteBytes = 0;
  double logicalBytes = 0;
  double combineRemoteBytes = 0;
  std::optional<Ceilings> ceilings;  // --ceiling
};

class Runner {
 public:
  // Allocates everything. No communication may be in flight on this machine's GPUs.
  Runner(const Options& options, Device& device, moeComm_t comm, Group& group, int tokens);

  // `progress` takes a sentence now and then.
  CaseResult run(const std::function<void(const std::string&)>& progress);

  // Of the first session.
  const Plan& plan(int version) const { return exchange_.sessions().front()->plan(version); }

 private:
  using Step = Exchange::Step;

  void makeSteps();
  void verifiedPass(const std::function<void(const std::string&)>& progress);
  void prepareTimedPasses();
  void phasePass(CaseResult& result);
  void pairPass(CaseResult& result);
  void memcpyPass(CaseResult& result);

  void refillSlots(int version);
  void letPeersGoOn();
  std::vector<double> samples(int markStep, int first, int second);
  void addBytes(CaseResult& result) const;

  const Options& options_;
  Device& device_;
  Group& group_;
  int tokens_;
  Checks checks_;
  Exchange exchange_;
  Buffer<std::uint32_t> timedIterations_;  // [version] whose payload the timed passes send
  std::vector<Step> verifiedSteps_;        // [version]
  std::vector<Step> sampledSteps_;         // [version]
  std::vector<Step> routeSteps_;           // [version]
  std::vector<Step> dispatchSteps_;        // [source]
  std::vector<Step> combineSteps_;         // [version]
  std::vector<Step> pairSteps_;            // [source]
};

}  // namespace moe::perf
