// Everything that is known about this machine, and how two of its GPUs would exchange rows.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/gpus.h"
#include "topology/machine.h"
#include "topology/nics.h"
#include "topology/pci_tree.h"

namespace moe::topology {

struct Topology {
  Machine machine;
  GpuInventory gpus;
  std::vector<Nic> nics;
  PciTree pci;
};

// Throws moe::Error. Only tests pass another `sys`.
Topology discover(const std::filesystem::path& sys = "/sys");

// The transport between a rank on one GPU and a rank on the other: "cuda-ipc", or "none: " and the reason.
std::string transportBetween(const GpuInventory& gpus, std::size_t from, std::size_t to);

}  // namespace moe::topology
