// Chooses the RDMA adapters of each GPU of a machine. It is a pure function of a described machine, so every rank of
// the machine, and every machine of that kind, finds the same. docs/reference/nics.md explains it.
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

// Rails number the ports that the GPUs use, in the order of their names or as listed. Unusable ports keep their number,
// so that a port that is down does not move the others.
struct NicChoice {
  std::vector<NicPort> rails;
  std::vector<std::vector<NicOfGpu>> ofGpus;  // by the GPU's index in the machine, in the order of the rails
  std::vector<LeftOut> leftOut;
  std::string reason;  // why no port can be used; empty if one can
};

// Throws moe::Error if MOECOMM_NICS asks for something that is not there.
NicChoice chooseNics(const std::vector<PciPlace>& gpus, std::vector<NicPort> ports, const RdmaSettings& settings);

}  // namespace moe::topology
