// Which RDMA adapters each GPU of a machine uses. A pure function over a described machine: every rank of the machine
// finds the same, and machines that are alike find alike. docs/reference/nics.md is its explanation.
#pragma once

#include <string>
#include <vector>

#include "topology/nic_list.h"
#include "topology/pci_tree.h"
#include "topology/rdma_settings.h"

namespace moe::topology {

// A port that could be used.
struct NicPort {
  NicName name;
  LinkLayer layer = LinkLayer::kEthernet;
  int gbps = 0;
  PciPlace place;
  std::string fault;  // why it cannot be used ("its state is DOWN"); empty if it can
};

struct NicOfGpu {
  int rail = 0;
  Distance distance = Distance::kMachine;
};

struct LeftOut {
  NicName name;
  std::string reason;
};

// Rails number the ports that the GPUs use, in the order of their names or as listed. Ports that cannot be used keep
// their number, so that a port that is down does not move the others.
struct NicChoice {
  std::vector<NicPort> rails;
  std::vector<std::vector<NicOfGpu>> ofGpus;  // by the GPU's index in the machine, in the order of the rails
  std::vector<LeftOut> leftOut;
  std::string reason;  // why no port can be used; empty if one can
};

// Throws moe::Error if MOECOMM_NICS asks for what is not there.
NicChoice chooseNics(const std::vector<PciPlace>& gpus, std::vector<NicPort> ports, const RdmaSettings& settings);

}  // namespace moe::topology
