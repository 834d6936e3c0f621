// Which port of which adapter this rank uses, and what its connections are made with. Not what the adapter itself says
// about it: that is adapter.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "topology/rdma.h"
#include "transport/remote.h"

namespace moe::verbs {

struct Rail {
  topology::RdmaPlan plan;
  std::vector<int> cpus;  // near the adapter; empty if they are not known
};

// Throws moeUnsupported, with the reason, if no port can be used.
Rail chooseRail(const RemoteSetup& setup, const std::filesystem::path& sys);

// The plan for the GPU number `gpu` of the machine; without one (-1), ranks of the host take the rails in turn.
// Throws moeUnsupported if there is none.
topology::RdmaPlan planFor(const topology::Rdma& rdma, int gpu, int indexOnHost);

// How many ranks before this one are in its domain, whose ranks share the host's adapters.
int indexInDomain(int rank, const std::vector<int>& peers);

// 7 means without end to adapters that are not from Mellanox (Soft-RoCE among them): a lost peer would never be
// noticed.
int retriesFor(int wanted, const std::string& driver);

// "0-3,8" is 0, 1, 2, 3, 8, as in local_cpulist of sysfs. Stops at what it does not understand.
std::vector<int> parseCpuList(const std::string& text);

}  // namespace moe::verbs
