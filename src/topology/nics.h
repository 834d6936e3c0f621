// The network adapters of this machine in sysfs: RDMA devices with their ports, and network interfaces.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/gid.h"

namespace moe::topology {

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
  long speedMbps = -1;                  // of the interface; -1 if unknown
  bool up = false;
  std::filesystem::path device;  // in sysfs, resolved
};

// RDMA devices first. Virtual interfaces (lo, bridges) are left out.
std::vector<Nic> findNics(const std::filesystem::path& sys);

}  // namespace moe::topology
