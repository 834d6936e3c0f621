// The places of GPUs and RDMA adapters in a machine's PCI tree, and the distance between two of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "topology/hwloc_topology.h"

namespace moe::topology {

struct PciPlace {
  std::vector<std::string> bridges;  // from the host bridge down; empty if the place is not known
  int numaNode = -1;                 // -1: not known, or more than one
  int package = -1;
};

// The nearest thing that two devices have in common. The nearest value comes first.
enum class Distance { pcieSwitch, hostBridge, numaNode, package, machine };

// "same switch", "same host bridge", ...
const char* nameOf(Distance distance);

Distance distanceBetween(const PciPlace& a, const PciPlace& b);

// A number for sorting; smaller is nearer. Of two ways through switches, the one that turns further down is nearer.
int wayBetween(const PciPlace& a, const PciPlace& b);

// All NVIDIA GPUs of the machine, not only those that this process may use. So ranks that see one GPU each still agree
// on which one takes which adapter.
struct PciTree {
  struct Gpu {
    std::string busId;  // "0000:17:00.0"
    PciPlace place;
  };
  std::vector<Gpu> gpus;                 // in the order of their bus ids, which is that of nvidia-smi
  std::map<std::string, PciPlace> nics;  // by the RDMA device's name
  std::string reason;                    // why the tree is not known; otherwise empty
};

PciTree readPciTree(const HwlocTopology& topology);

}  // namespace moe::topology
