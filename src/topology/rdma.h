// The adapters of each GPU that RDMA would use on this machine, and the parameters of their connections.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/nic_choice.h"
#include "topology/rdma_plan.h"
#include "topology/topology.h"

namespace moe::topology {

struct Rdma {
  NicChoice nics;
  std::vector<RdmaPlan> plans;  // plans of the usable rails
};

// Throws moe::Error if the settings ask for something that does not exist.
Rdma planRdma(const Topology& topology, const RdmaSettings& settings, std::int64_t timeoutMs);

// The index of a GPU among those of the machine, by its bus id; -1 if it is unknown.
int indexOfGpu(const PciTree& tree, const std::string& busId);

}  // namespace moe::topology
