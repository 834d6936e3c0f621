#include "topology/topology.h"

#include <algorithm>

namespace moe::topology {

Topology discover(const std::filesystem::path& sys) {
  return {describeMachine(), findGpus(sys), findNics(sys)};
}

int sharedDepth(const std::filesystem::path& device, const std::filesystem::path& other) {
  const auto ends = std::mismatch(device.begin(), device.end(), other.begin(), other.end());
  return static_cast<int>(std::distance(device.begin(), ends.first));
}

int nearestNic(const Topology& topology, const Gpu& gpu) {
  int best = -1;
  int bestDepth = -1;
  for (std::size_t i = 0; i < topology.nics.size(); ++i) {
    const Nic& nic = topology.nics[i];
    const int depth = sharedDepth(gpu.device, nic.device);
    if (!nic.rdma || !nic.up || depth <= bestDepth) continue;
    best = static_cast<int>(i);
    bestDepth = depth;
  }
  return best;
}

std::string transportBetween(const GpuInventory& gpus, std::size_t from, std::size_t to) {
  if (from == to) return "cuda-ipc";  // ranks that share a GPU
  const bool both = gpus.links[from][to].peerAccess && gpus.links[to][from].peerAccess;
  return both ? "cuda-ipc" : "none: no peer access";
}

}  // namespace moe::topology
