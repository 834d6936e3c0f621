// How a step on a CPU waits: with patience. If threads carry its puts, it may do their work meanwhile.
#pragma once

#include "device/policy/host/patience.h"
#include "device/queue/put_helper.h"

namespace moe {

// The helper of this rank's transport; NULL: none.
inline const PutHelper* putHelper(const CommView& comm) {
  return comm.split() ? comm.far->remote.helper : nullptr;
}

class HostWait {
 public:
  // `pace` and `since` are as in HostPatience.
  explicit HostWait(const CommView& comm, HostPace* pace = nullptr, std::uint32_t* since = nullptr)
      : patience_(comm, pace, since), helper_(putHelper(comm)) {}

  // As HostPatience::anew().
  void anew() {
    idle_ = 0;
    patience_.anew();
  }

  // Called between looks, as HostPatience::goesOn().
  template <class LateOf, class Report>
  bool goesOn(LateOf lateOf, Report report) {
    if (helper_ == nullptr) return patience_.goesOn(lateOf, report);
    if (helper_->advance()) {
      idle_ = 0;
      return true;
    }
    if (!patience_.mayGoOn(lateOf, report)) return false;
    helper_->pause(++idle_);
    return true;
  }

 private:
  HostPatience patience_;
  const PutHelper* helper_;
  int idle_ = 0;
};

}  // namespace moe
