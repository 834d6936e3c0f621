// Everything that is known about this machine: its cores and memory, its adapters, its GPUs and where they are; and how
// two of its GPUs would exchange rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "topology/gid.h"
#include "topology/gpus.h"
#include "topology/hwloc_topology.h"
#include "topology/pci_tree.h"

namespace moe::topology {

// Cores and memory by NUMA node, from hwloc. Without hwloc, only the number of processors is known.
struct NumaNode {
  int number = 0;
  std::uint64_t memoryBytes = 0;
  int cores = 0;
  int threads = 0;         // hardware threads
  std::string threadList;  // "0-15,32-47"
};

struct Machine {
  std::string processor;
  int cores = 0;  // 0: not known
  int threads = 0;
  std::vector<NumaNode> nodes;
  std::string reason;  // why cores and nodes are not known; otherwise empty
};

// The processor's model from /proc/cpuinfo: "model name : Intel(R) Xeon(R) ...". Empty on machines that do not give it.
std::string processorModel();

Machine describeMachine(const HwlocTopology& topology);

// The network adapters in sysfs: RDMA devices with their ports, and network interfaces.
struct RdmaPort {
  int number = 0;
  std::string state;      // "ACTIVE", "DOWN", ...
  std::string rate;       // "400 Gb/sec (4X NDR)"
  std::string linkLayer;  // "InfiniBand" or "Ethernet"
  std::vector<GidEntry> gids;
};

struct Nic {
  std::string name;   // RDMA device ("mlx5_0"), or the interface where there is none
  std::string busId;  // empty for adapters that are no PCI devices
  int numaNode = -1;
  bool rdma = false;
  std::vector<RdmaPort> ports;
  std::vector<std::string> interfaces;  // network interfaces of the same adapter
  long speedMbps = -1;                  // speed of the interface; -1 if unknown
  bool up = false;
  std::filesystem::path device;  // in sysfs, resolved
};

// RDMA devices first. Virtual interfaces (lo, bridges) are left out.
std::vector<Nic> findNics(const std::filesystem::path& sys);

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
