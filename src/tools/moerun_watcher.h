// A process that outlives moerun. If moerun disappears without having ended its ranks (killed, or by a signal that it
// does not handle), the watcher ends them, with everything that they have started in their process groups.
#pragma once

#include <sys/types.h>

#include "base/fd.h"

namespace moe::tools {

class Watcher {
 public:
  // Must be called before there are threads. Throws moe::Error.
  Watcher();
  // For an orderly end: the watcher exits, and the groups that it knows go on.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  // From now on the group of this number ends with moerun. The first process of the group calls it, between fork and
  // exec.
  void enroll(pid_t group) const noexcept;
  // The group has ended, and its number may soon be another's.
  void forget(pid_t group) const noexcept;

 private:
  pid_t pid_ = -1;
  Fd line_;  // The watcher reads the other end. It closes when moerun ends, for whatever reason.
};

}  // namespace moe::tools
