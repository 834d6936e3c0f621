// The adapters of each GPU that RDMA would use on this machine, and the parameters of their connections. The choice is
// a pure function of a machine's description, so all ranks of a machine, and all machines of the same kind, get the
// same result. docs/reference/nics.md explains it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/nic_list.h"
#include "topology/pci_tree.h"
#include "topology/rdma_plan.h"
#include "topology/rdma_settings.h"
#include "topology/topology.h"

namespace moe::topology {

// A port that could be used.
struct NicPort {
  NicName name;
  LinkLayer layer = LinkLayer::ethernet;
  int gbps = 0;
  PciPlace place;
  std::string fault;  // why it cannot be used ("its state is DOWN"); otherwise empty
};

struct NicOfGpu {
  int rail = 0;
  Distance distance = Distance::machine;
};

struct LeftOut {
  NicName name;
  std::string reason;
};

// Rails number the ports that the GPUs use, in the order of their names or of the list. Unusable ports keep their
// number, so that a port that is down does not renumber the others.
struct NicChoice {
  std::vector<NicPort> rails;
  std::vector<std::vector<NicOfGpu>> ofGpus;  // by the GPU's index in the machine, in the order of the rails
  std::vector<LeftOut> leftOut;
  std::string reason;  // why no port can be used; otherwise empty
};

// Throws moe::Error if MOECOMM_NICS asks for something that does not exist.
NicChoice chooseNics(const std::vector<PciPlace>& gpus, std::vector<NicPort> ports, const RdmaSettings& settings);

struct Rdma {
  NicChoice nics;
  std::vector<RdmaPlan> plans;  // plans of the usable rails
};

// Throws moe::Error if the settings ask for something that does not exist.
Rdma planRdma(const Topology& topology, const RdmaSettings& settings, std::int64_t timeoutMs);

// The index of a GPU among those of the machine, by its bus id; -1 if it is unknown.
int indexOfGpu(const PciTree& tree, const std::string& busId);

}  // namespace moe::topology
