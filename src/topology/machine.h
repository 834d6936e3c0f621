// Cores and memory of this machine by NUMA node, from hwloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
  int cores = 0;
  int threads = 0;
  std::vector<NumaNode> nodes;
};

// Throws moe::Error if hwloc cannot look at the machine.
Machine describeMachine();

}  // namespace moe::topology
