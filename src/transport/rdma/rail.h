// Which ports of which adapters this rank uses, and the parameters of its connections. adapter.h has what the adapters
// themselves report.
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

// The plans for GPU number `gpu` of the machine, for all its usable adapters. Without a GPU (-1), the ranks of the host
// take the adapters in turn, `each` of them. Throws moeUnsupported if there is none.
std::vector<topology::RdmaPlan> plansFor(const topology::Rdma& rdma, int gpu, int indexOnHost, int each);

// How many of `found` adapters can share `connections`, and rings of puts, evenly; the largest such number.
int railsFor(int connections, int found);
// The number of posting threads: the same for each of `rails` adapters, and at least `wanted` if the limit allows it.
int threadsFor(int wanted, int rails);

// How many ranks of its domain come before this one. The domain's ranks share the host's adapters.
int indexInDomain(int rank, const std::vector<int>& peers);

// Adapters of other vendors than Mellanox (Soft-RoCE among them) take 7 as "retry for ever", and a lost peer would
// never be noticed.
int retriesFor(int wanted, const std::string& driver);

// "0-3,8" is 0, 1, 2, 3, 8, as in local_cpulist of sysfs. Stops at text that it does not understand.
std::vector<int> parseCpuList(const std::string& text);

}  // namespace moe::verbs
