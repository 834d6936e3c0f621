#include "bootstrap/group/process_watch.h"

#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>

namespace moe::bootstrap {
namespace {

constexpr std::chrono::milliseconds kGoodbyeWay{1000};  // for a goodbye to travel over ranks that may be busy

// Opens the process with this identity, or none. While the descriptor is open, no other process gets its id.
Fd openProcess(const HostIdentity& identity) {
#ifdef SYS_pidfd_open
  Fd process(static_cast<int>(::syscall(SYS_pidfd_open, identity.processId, 0)));
  if (!process || startOfProcess(std::to_string(identity.processId)) != identity.processStart) return {};
  (void)::fcntl(process.get(), F_SETFD, FD_CLOEXEC);
  return process;
#else
  (void)identity;
  return {};
#endif
}

bool mayBeWatched(const HostIdentity& own, const HostIdentity& other) {
  const bool known = own.pidNamespace != 0 && own.processStart != 0 && other.processStart != 0;
  return known && own.sameKernel(other) && own.pidNamespace == other.pidNamespace && !own.sameProcess(other);
}

}  // namespace

ProcessWatch::ProcessWatch(int self, const std::vector<HostIdentity>& ofRanks) {
  const int nranks = static_cast<int>(ofRanks.size());
  for (int i = 1; i < nranks && watched_.size() < kMax; ++i) {
    const int rank = (self + i) % nranks;
    const HostIdentity& identity = ofRanks[static_cast<std::size_t>(rank)];
    if (!mayBeWatched(ofRanks[static_cast<std::size_t>(self)], identity)) continue;
    if (Fd process = openProcess(identity)) watched_.push_back({rank, std::move(process), 0});
  }
}

void ProcessWatch::arm(PollSet& set) {
  for (Watched& watched : watched_) watched.index = set.add(watched.process.get(), POLLIN);
}

void ProcessWatch::serve(const PollSet& set) {
  std::erase_if(watched_, [&](const Watched& watched) {
    if (set.at(watched.index) == 0) return false;
    ended_.push_back({watched.rank, Deadline::after(kGoodbyeWay)});
    return true;
  });
}

}  // namespace moe::bootstrap
