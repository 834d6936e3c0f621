// How a step on a CPU waits: with patience, and where its puts are carried by threads that it may help, by doing their
// work.
#pragma once

#include <chrono>

#include "device/host_patience.h"
#include "device/put_helper.h"

namespace moe {

// That of this rank's transport; NULL: there is none to help.
inline const PutHelper* putHelper(const CommView& comm) {
  return comm.split() ? comm.far->remote.helper : nullptr;
}

class HostWait {
 public:
  // `patience`: what a HostPatience takes beside.
  template <class... Args>
  explicit HostWait(const CommView& comm, Args... patience)
      : comm_(comm), patience_(comm, patience...), helper_(putHelper(comm)) {}

  // The next thing may come soon again. The time goes on.
  void anew() {
    idle_ = 0;
    patience_.anew();
  }

  // Between looks. False if it is over; if that is because it is late, tellLate() has been called.
  template <class TellLate>
  bool goesOn(TellLate tellLate) {
    if (helper_ == nullptr) return patience_.goesOn(tellLate);
    if (helper_->advance()) {
      idle_ = 0;
      return true;
    }
    if (HostPatience::stopped(comm_)) return false;
    const auto now = Clock::now();
    if (end_ == Clock::time_point{}) end_ = now + std::chrono::nanoseconds(comm_.timeoutNs);
    if (now >= end_) {
      tellLate();
      return false;
    }
    helper_->pause(++idle_);
    return true;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const CommView& comm_;
  HostPatience patience_;
  const PutHelper* helper_;
  int idle_ = 0;
  Clock::time_point end_{};
};

}  // namespace moe
