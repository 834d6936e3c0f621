// How other threads talk to the one thread that runs a Node. They leave failures to announce, late waits, the news that
// this rank's work has ended, or the request to leave, and wake its poll loop. Besides the Node's record of which ranks
// have left or are leaving, it is the only thread-safe part of a Node.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

class Mailbox : public Source {
 public:
  Mailbox() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!event_) throw Error(moeSystemError, "cannot make an eventfd: " + errorText(errno));
  }

  void post(Failure failure) {
    {
      const std::lock_guard lock(mutex_);
      failures_.push_back(std::move(failure));
    }
    wake();
  }

  void postLate(LateWait wait) {
    {
      const std::lock_guard lock(mutex_);
      lateWaits_.push_back(std::move(wait));
    }
    wake();
  }

  void endWork() noexcept {
    workEnded_.store(true);
    wake();
  }
  bool workEnded() const noexcept { return workEnded_.load(); }

  void askToLeave() noexcept {
    leaveAsked_.store(true);
    wake();
  }
  // Ends the poll that the thread is in.
  void wake() noexcept {
    const std::uint64_t one = 1;
    (void)!::write(event_.get(), &one, sizeof(one));  // if it is full, the thread is already awake
  }
  bool leaveAsked() const noexcept { return leaveAsked_.load(); }

  std::vector<Failure> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(failures_, {});
  }
  std::vector<LateWait> takeLateWaits() {
    const std::lock_guard lock(mutex_);
    return std::exchange(lateWaits_, {});
  }

  void arm(PollSet& set) override { index_ = set.add(event_.get(), POLLIN); }
  void serve(const PollSet& set) override {
    std::uint64_t count = 0;
    if (set.at(index_) != 0) (void)!::read(event_.get(), &count, sizeof(count));
  }

 private:
  Fd event_;
  std::size_t index_ = 0;
  std::mutex mutex_;
  std::vector<Failure> failures_;
  std::vector<LateWait> lateWaits_;
  std::atomic<bool> workEnded_ = false, leaveAsked_ = false;
};

}  // namespace moe::bootstrap
