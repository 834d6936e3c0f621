#include "backend/host_threads.h"

#include <unistd.h>

#include "base/error.h"
#include "base/quiet_thread.h"

namespace moe {

void HostThreads::end() noexcept {
  if (ofAnotherProcess()) {
    for (auto& member : members_) static_cast<void>(member.release());  // a forked child does not have the threads
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  for (auto& member : members_) {
    member->called.notify_one();
    if (member->thread.joinable()) member->thread.join();
  }
  members_.clear();
  over_ = false;
}

bool HostThreads::ofAnotherProcess() const {
  return !members_.empty() && process_ != ::getpid();
}

void HostThreads::need(int members) {
  if (ofAnotherProcess()) {
    throw Error(moeInvalidUsage, "the communicator belongs to the process that this one was forked from");
  }
  process_ = ::getpid();
  while (static_cast<int>(members_.size()) < members) {
    auto member = std::make_unique<Member>();
    const int warp = static_cast<int>(members_.size()) + 1;
    member->thread = startQuietThread([this, &self = *member, warp] { serve(self, warp); });
    members_.push_back(std::move(member));
  }
}

void HostThreads::run(int warps, const Part& part) {
  const int others = warps - 1;
  need(others);
  {
    const std::lock_guard lock(mutex_);
    part_ = &part;
    left_ = others;
    for (int i = 0; i < others; ++i) members_[static_cast<std::size_t>(i)]->busy = true;
  }
  for (int i = 0; i < others; ++i) members_[static_cast<std::size_t>(i)]->called.notify_one();
  part(0, pace_);
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return left_ == 0; });
}

void HostThreads::serve(Member& member, int warp) {
  std::unique_lock lock(mutex_);
  for (;;) {
    member.called.wait(lock, [&] { return member.busy || over_; });
    if (!member.busy) return;
    const Part& part = *part_;
    lock.unlock();
    part(warp, member.pace);
    lock.lock();
    member.busy = false;
    if (--left_ == 0) done_.notify_one();
  }
}

}  // namespace moe
