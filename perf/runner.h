// Runs one case on one rank: a pass in which every iteration is verified, and timed passes whose last results are
// verified too. All ranks run the same steps in the same order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ceiling.h"
#include "device.h"
#include "group.h"
#include "moecomm.h"
#include "options.h"
#include "session.h"

namespace moe::perf {

// The same on every rank.
struct CaseResult {
  int tokens = 0;
  std::string backend;
  std::string device;
  int nranks = 0;
  unsigned long long wrongPayloads = 0;
  unsigned long long wrongMetadata = 0;
  unsigned long long wrongCombines = 0;
  double maxRelError = 0;
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

  bool correct() const { return wrongPayloads + wrongMetadata + wrongCombines == 0; }
};

// Of one session; sessions of a case and of a run differ.
std::uint64_t sessionSeed(const Options& options, int session);

class Runner {
 public:
  // Allocates everything. No communication may be in flight on this machine's GPUs.
  Runner(const Options& options, Device& device, moeComm_t comm, Group& group, int tokens);

  // `progress` takes a sentence now and then.
  CaseResult run(const std::function<void(const std::string&)>& progress);

  // Of the first session.
  const Plan& plan(int version) const { return sessions_.front()->plan(version); }

 private:
  // A sequence of stream work, played directly or as a captured graph.
  struct Step {
    std::function<void()> play;
  };

  Step makeStep(std::function<void()> record);
  void makeSteps();
  void verifiedIteration(int version, int stride);
  void dispatchAll(int source);
  void combineAll(int version);

  void verifiedPass(const std::function<void(const std::string&)>& progress);
  void prepareTimedPasses();
  void phasePass(CaseResult& result);
  void pairPass(CaseResult& result);
  void memcpyPass(CaseResult& result);

  void setIteration(std::uint32_t iteration);
  void countWrongCounts(int version);
  void refillSlots(int version);
  void letPeersGoOn();
  void settle();  // waits, and throws if the communicator has failed
  std::vector<double> samples(int markStep, int first, int second);
  void addFindings(CaseResult& result);
  void addBytes(CaseResult& result) const;

  const Options& options_;
  Device& device_;
  moeComm_t comm_;
  Group& group_;
  int tokens_;
  Buffer<std::uint32_t> iteration_;
  Buffer<Findings> findings_;
  std::uint64_t wrongCounts_ = 0;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<Step> verifiedSteps_;  // [version]
  std::vector<Step> sampledSteps_;   // [version]
  std::vector<Step> routeSteps_;     // [version]
  std::vector<Step> dispatchSteps_;  // [source]
  std::vector<Step> combineSteps_;   // [version]
  std::vector<Step> pairSteps_;      // [source]
};

}  // namespace moe::perf
