// Which ports of which adapters this rank uses, and what its connections are made with. Not what the adapters
// themselves say about it: that is adapter.h.
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

// At least one, in the order of the rails. Throws moeUnsupported, with the reason, if no port can be used.
std::vector<Rail> chooseRails(const RemoteSetup& setup, const std::filesystem::path& sys);

// The plans for the GPU number `gpu` of the machine: of all of its adapters that can be used. Without a GPU (-1), ranks
// of the host take the rails in turn, `each` of them. Throws moeUnsupported if there is none.
std::vector<topology::RdmaPlan> plansFor(const topology::Rdma& rdma, int gpu, int indexOnHost, int each);

// Of `found` adapters the most that can share `connections` evenly, and rings of puts.
int railsFor(int connections, int found);
// Threads that post, at least `wanted` if there may be as many: equally many for each of `rails` adapters.
int threadsFor(int wanted, int rails);

// How many ranks before this one are in its domain, whose ranks share the host's adapters.
int indexInDomain(int rank, const std::vector<int>& peers);

// 7 means without end to adapters that are not from Mellanox (Soft-RoCE among them): a lost peer would never be
// noticed.
int retriesFor(int wanted, const std::string& driver);

// "0-3,8" is 0, 1, 2, 3, 8, as in local_cpulist of sysfs. Stops at what it does not understand.
std::vector<int> parseCpuList(const std::string& text);

}  // namespace moe::verbs
