// Cores and memory of this machine by NUMA node, from hwloc. Without hwloc, only the number of processors is known.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/hwloc_topology.h"

namespace moe::topology {

struct NumaNode {
  int number = 0;
  std::uint64_t memoryBytes = 0;
  int cores = 0;
  int threads = 0;         // hardware threads
  std::string threadList;  // "0-15,32-47"
};

struct Machine {
  std::string processor;
  int cores = 0;  // 0: not known
  int threads = 0;
  std::vector<NumaNode> nodes;
  std::string reason;  // why cores and nodes are not known; otherwise empty
};

// The processor's model from /proc/cpuinfo: "model name : Intel(R) Xeon(R) ...". Empty on machines that do not give it.
std::string processorModel();

Machine describeMachine(const HwlocTopology& topology);

}  // namespace moe::topology
