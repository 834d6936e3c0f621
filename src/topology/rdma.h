// What RDMA would use on this machine: the adapters of each GPU, and what the connections of each rail are made with.
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
  std::vector<RdmaPlan> plans;  // of the rails that can be used
};

// Throws moe::Error if the settings ask for what is not there.
Rdma planRdma(const Topology& topology, const RdmaSettings& settings, std::int64_t timeoutMs);

// Index of a GPU, known by its bus id, among those of the machine; -1 if it is not known.
int indexOfGpu(const PciTree& tree, const std::string& busId);

}  // namespace moe::topology
