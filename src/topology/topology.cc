#include "topology/topology.h"

namespace moe::topology {

Topology discover(const std::filesystem::path& sys) {
  const HwlocTopology hwloc = loadHwloc();
  return {describeMachine(hwloc), findGpus(sys), findNics(sys), readPciTree(hwloc)};
}

std::string transportBetween(const GpuInventory& gpus, std::size_t from, std::size_t to) {
  if (from == to) return "cuda-ipc";  // ranks that share a GPU
  const bool both = gpus.links[from][to].peerAccess && gpus.links[to][from].peerAccess;
  return both ? "cuda-ipc" : "none: no peer access";
}

}  // namespace moe::topology
