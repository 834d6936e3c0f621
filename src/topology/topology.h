// Everything that is known about this machine, and what follows from it: which adapter is near which GPU, and how two
// GPUs would exchange rows.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/gpus.h"
#include "topology/machine.h"
#include "topology/nics.h"

namespace moe::topology {

struct Topology {
  Machine machine;
  GpuInventory gpus;
  std::vector<Nic> nics;
};

// Throws moe::Error. `sys` is another directory in tests only.
Topology discover(const std::filesystem::path& sys = "/sys");

// How close two PCI devices are: the number of directories that their places in sysfs share. 0 if one is not known.
int sharedDepth(const std::filesystem::path& device, const std::filesystem::path& other);

// Index of the RDMA adapter with the shortest way to the GPU, the first of several; -1 if there is none that is up.
int nearestNic(const Topology& topology, const Gpu& gpu);

// What a rank on one GPU would use towards a rank on the other: "cuda-ipc", or "none: " and why.
std::string transportBetween(const GpuInventory& gpus, std::size_t from, std::size_t to);

}  // namespace moe::topology
