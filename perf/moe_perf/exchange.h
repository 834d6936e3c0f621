// The one session, or the two interleaved ones, that exchange rows, and the operations that they run. A verified
// iteration runs all of them. The runner times these steps, and the soak repeats them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "moecomm.h"
#include "perf/moe_perf/group.h"
#include "perf/moe_perf/host_load.h"
#include "perf/moe_perf/options.h"
#include "perf/moe_perf/session.h"
#include "perf/payload/device.h"

namespace moe::perf {

// The machine of a run.
struct Machine {
  std::string backend;
  std::string device;
  int nranks = 0;
  int domains = 1;
  std::string transport{};  // between domains, if there are several
  HostLoad hostLoad{};      // of the host whose ranks have the fewest processors
};

// The errors that were found on any rank.
struct Verdict {
  unsigned long long wrongPayloads = 0;
  unsigned long long wrongMetadata = 0;
  unsigned long long wrongCombines = 0;
  double maxRelError = 0;

  unsigned long long wrong() const { return wrongPayloads + wrongMetadata + wrongCombines; }
  bool correct() const { return wrong() == 0; }
};

// Shared by the checks of one rank: the number of the current payload, and the findings.
struct Checks {
  explicit Checks(Device& device) : iteration(device, 1), findings(device, 1) {}

  // Collective. Returns the same on all ranks. Waits for the stream.
  Verdict gatherVerdict(Device& device, Group& group) const;

  Buffer<std::uint32_t> iteration;
  Buffer<Findings> findings;
  std::uint64_t wrongCounts = 0;  // from moeHandleGetCounts
};

// The seed of a session. It differs between the sessions of an exchange, and between values of --seed.
std::uint64_t sessionSeed(const Options& options, int session);

class Exchange {
 public:
  // Stream work, run directly or as a captured graph.
  using Step = std::function<void()>;

  // Allocates everything. No communication may be in flight on this machine's GPUs. `options` and `checks` must outlive
  // it.
  Exchange(const Options& options, const Load& load, Device& device, moeComm_t comm, Checks& checks);

  Step makeStep(Step record);

  // With two sessions: route A, dispatch A, route B, dispatch B, then both combines. `faulty`: the route of the first
  // session has a bad entry.
  void iterate(int version, int stride, bool faulty = false);
  // Whether an iteration of this version may be faulty: --faults-one-in was given, and the first session sends a token.
  bool mayFail(int version) const { return sessions_.front()->mayFail(version); }

  // The parts, each for all sessions; see Session.
  void fill(int source);
  void route(int version);
  void dispatch(int source);
  void routeDispatch(int version);
  void runExperts(int version);
  void combine(int version);
  void verifyDispatch(int version, int stride);
  void verifyCombine(int version, int stride);
  void setIteration(std::uint32_t iteration);

  // These wait for the stream. `settle` throws if the communicator has failed.
  void countWrongCounts(int version, bool faulty = false);
  void settle();

  const std::vector<std::unique_ptr<Session>>& sessions() const { return sessions_; }

 private:
  void complete();
  // Whether the session's route has a bad entry: that of the first one in a faulty iteration.
  bool isBad(const std::unique_ptr<Session>& session, bool faulty) const {
    return faulty && session == sessions_.front();
  }

  const Options& options_;
  Device& device_;
  moeComm_t comm_;
  Checks& checks_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

}  // namespace moe::perf
