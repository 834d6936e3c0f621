// What hwloc knows about a machine: this one, or one that was written to an XML file. machine.h and pci_tree.h read it.
#pragma once

#include <hwloc.h>

#include <filesystem>
#include <memory>

namespace moe::topology {

struct HwlocDeleter {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using HwlocTopology = std::unique_ptr<hwloc_topology, HwlocDeleter>;

// With PCI devices. `xml`: a file instead of this machine. Throws moe::Error.
HwlocTopology loadHwloc(const std::filesystem::path& xml = {});

}  // namespace moe::topology
