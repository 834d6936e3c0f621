// The one background thread of a rank, and what it watches besides connections. It runs the rank's Node from the end of
// initialisation until the rank leaves, and tells the communicator what it learns. Everything it needs is passed in.
// The callbacks run on its thread.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/group/bootstrap.h"
#include "bootstrap/group/host_identity.h"
#include "bootstrap/group/node.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

// Watches the processes of other ranks on this host. It sees their end at once, even while a forked process holds their
// connections open, and tells the node. A source of the node's rounds, also in collectives.
class ProcessWatch : public Source {
 public:
  // Watches the processes of the next ranks after the node's own, in a ring, at most kMax. Leaves out processes whose
  // identity is uncertain: those of other process namespaces, without /proc, or of a kernel without pidfd_open.
  ProcessWatch(Node& node, const std::vector<HostIdentity>& ofRanks);

  // A new process has the number of `rank`. The old one does not matter any more.
  void replace(int rank, const HostIdentity& identity);

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return ended_.empty() ? 1 << 30 : kAgainMs; }

 private:
  static constexpr int kMax = 32, kAgainMs = 2;
  struct Watched {
    int rank;
    Fd process;
    std::size_t index;
  };
  struct Ended {
    int rank;
    Deadline goodbyeEnd;  // by then a goodbye of the process would have arrived
  };
  Node& node_;
  std::optional<HostIdentity> self_;  // nothing: it watches none
  std::vector<Watched> watched_;
  std::vector<Ended> ended_;  // what the node has not handled
};

class Monitor {
 public:
  struct Callbacks {
    std::function<void(const Failure&)> onFailure;
    std::function<void()> onTick;        // may be empty
    std::chrono::milliseconds tick{10};  // how often
  };

  // `node` must outlive the monitor and is not touched by others while it runs.
  // `processes`: where the ranks run, or empty.
  Monitor(Node& node, Callbacks callbacks, const std::vector<HostIdentity>& processes);
  ~Monitor() { stop(); }

  // Waits for `company`, says goodbye to the group and ends the thread. If the monitor's own thread calls it, it only
  // requests that.
  void stop(const Company& company = {}) noexcept;

  // Ends the thread, without a goodbye. Until goOn(), the caller may use the node. Throws moeInvalidUsage if a callback
  // calls it.
  void rest();
  // Starts the thread again. If that fails, it reports this as a failure of this rank.
  void goOn() noexcept;
  bool resting() const { return restAsked_.load(); }
  // While it rests: a new process has the number of `rank`.
  void watch(int rank, const HostIdentity& process) { processes_.replace(rank, process); }

 private:
  void start();
  void run();
  bool watch();
  bool mayLeave();
  void report(const Failure& failure) noexcept;
  void giveUp(const Failure& failure);
  void findParentBeforeLeaving();

  Node& node_;
  Callbacks callbacks_;
  ProcessWatch processes_;
  AddedSource watching_;
  Company company_;                 // read when leaving has been asked for
  std::optional<Deadline> waited_;  // bounds the wait for company_, once this rank has announced that it will leave
  std::atomic<bool> restAsked_ = false;
  bool ended_ = false;  // the thread has said goodbye; read when it does not run
  std::thread thread_;
};

}  // namespace moe::bootstrap
