// The one background thread of a rank. It runs the rank's Node from the end of initialisation until the rank leaves,
// and tells the communicator what it learns. Everything it needs is passed in. The callbacks run on its thread.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "bootstrap/group/company.h"
#include "bootstrap/group/node.h"
#include "bootstrap/group/process_watch.h"
#include "bootstrap/group/reparent.h"

namespace moe::bootstrap {

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
  ~Monitor() {
    stop();
    node_.removeSource(processes_);
  }

  // Waits for `company`, says goodbye to the group and ends the thread. If the monitor's own thread calls it, it only
  // requests that.
  void stop(const Company& company = {}) noexcept;

 private:
  void run();
  void watch();
  void lookAtProcesses();
  bool mayLeave();
  void report(const Failure& failure) noexcept;
  void giveUp(const Failure& failure);
  void findParentBeforeLeaving();

  Node& node_;
  Callbacks callbacks_;
  Reparent reparent_;
  ProcessWatch processes_;
  Company company_;                 // read when leaving has been asked for
  std::optional<Deadline> waited_;  // for the company, since this rank announced that it will leave
  std::thread thread_;
};

}  // namespace moe::bootstrap
