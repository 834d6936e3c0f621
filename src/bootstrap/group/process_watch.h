// Watches the processes of other ranks on this host. It sees their end at once, even while a forked process holds their
// connections open. The monitor uses it.
#pragma once

#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/group/host_identity.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

class ProcessWatch : public Source {
 public:
  // Watches the processes of the next ranks after `self`, in a ring, at most kMax. Leaves out processes whose identity
  // is uncertain: those of other process namespaces, without /proc, or of a kernel without pidfd_open.
  ProcessWatch(int self, const std::vector<HostIdentity>& ofRanks);

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return ended_.empty() ? 1 << 30 : kAgainMs; }

  struct Ended {
    int rank;
    Deadline goodbyeEnd;  // by then a goodbye of the process would have arrived
    int seen = 0;         // how often its owner has checked
  };
  // Ranks whose process has ended. The owner removes those that it has handled.
  std::vector<Ended>& ended() { return ended_; }

 private:
  static constexpr int kMax = 32, kAgainMs = 2;
  struct Watched {
    int rank;
    Fd process;
    std::size_t index;
  };
  std::vector<Watched> watched_;
  std::vector<Ended> ended_;
};

}  // namespace moe::bootstrap
