// Watches processes of this host in which other ranks run: their end is seen at once, also while a process that they
// have forked holds their connections open. Used by the monitor.
#pragma once

#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "bootstrap/group/host_identity.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

class ProcessWatch : public Source {
 public:
  // The processes of the next ranks behind `self`, in a ring, at most kMax. Leaves out those of which it is not sure
  // which they are: of other process namespaces, without /proc, or of a kernel that has no pidfd_open.
  ProcessWatch(int self, const std::vector<HostIdentity>& ofRanks);

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override { return ended_.empty() ? 1 << 30 : kAgainMs; }

  struct Ended {
    int rank;
    Deadline goodbyeEnd;  // a goodbye that its process said would have been heard by then
    int seen = 0;         // how often its owner has looked
  };
  // Those whose process has ended. The owner removes whom it has dealt with.
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
