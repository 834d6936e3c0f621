// Gives each rank of this machine its own processors, so that no rank waits for another's time slice.
#pragma once

#include <string>
#include <vector>

#include "tools/moerun_plan.h"

namespace moe::tools {

enum class Bind {
  none,
  core,   // each rank has one core, with all its threads
  share,  // all processors are divided evenly among the ranks
};

struct Processor {
  int number = 0;
  int package = 0;
  int core = 0;  // smallest number of a processor of the same core
};

// The processors that this process may use, by package, core and number. Where `sys` has no such information, each
// processor counts as a core.
std::vector<Processor> usableProcessors(const std::string& sys = "/sys");

// Gives each of `ranks` neighbouring processors that no other rank has. `processors` come from usableProcessors. Throws
// moe::Error if there are too few.
std::vector<std::vector<int>> shareProcessors(const std::vector<Processor>& processors, Bind bind, int ranks);

// Fills in the processors of the ranks of this machine. Throws moe::Error if there are too few, or if ranks run
// elsewhere.
void bindRanks(Bind bind, std::vector<Placement>* placements);

// The mask that sched_setaffinity takes.
std::vector<unsigned long> affinityMask(const std::vector<int>& processors);

}  // namespace moe::tools
