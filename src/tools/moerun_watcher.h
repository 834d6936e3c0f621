// A process that outlives moerun. Should moerun go away without having ended its ranks (killed, or by a signal that it
// does not take), the watcher ends them, with all that they have started in their process groups.
#pragma once

#include <sys/types.h>

#include "base/fd.h"

namespace moe::tools {

class Watcher {
 public:
  // Call before there are threads. Throws moe::Error.
  Watcher();
  // All is in order: the watcher ends, the groups that it knows go on.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // From here on the group of this number is ended with moerun. Called by the process that is the group's first,
  // between fork and exec.
  void enroll(pid_t group) const noexcept;
  // The group is gone; its number may be another's soon.
  void forget(pid_t group) const noexcept;

 private:
  pid_t pid_ = -1;
  Fd line_;  // The watcher reads the other end. It closes when moerun is gone, however that came.
};

}  // namespace moe::tools
