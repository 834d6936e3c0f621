// Starts one rank, by fork on this machine or through ssh on another. The supervisor waits for it.
#pragma once

#include <sys/types.h>

#include "base/fd.h"
#include "tools/moerun_job.h"
#include "tools/moerun_plan.h"
#include "tools/moerun_watcher.h"

namespace moe::tools {

struct RankProcess {
  Placement placement;
  pid_t pid = -1;  // also the process group
  Fd out;
  Fd err;
  Fd stop;  // ssh ranks: closing it ends the remote process group
};

// Throws moe::Error if the process cannot be made. A command that cannot be executed shows as exit status 127 (not
// found) or 126, with a sentence on the rank's standard error. The watcher learns of the process before anything else
// can run in it.
RankProcess startRank(const Job& job, const Placement& placement, const Watcher& watcher);

}  // namespace moe::tools
