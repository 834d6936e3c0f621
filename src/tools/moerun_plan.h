// Where each rank of a moerun job runs: the host list of the command line, and the ranks in blocks over it. The code is
// pure arithmetic and starts nothing.
#pragma once

#include <string>
#include <vector>

namespace moe::tools {

struct HostSlots {
  std::string name;
  int slots = 0;  // 0: not given
};

struct Placement {
  int rank = 0;
  int localRank = 0;
  int localCount = 0;
  std::string host;
  bool local = true;            // started by fork rather than through ssh
  std::vector<int> processors;  // processors that the rank may use; empty: all of moerun's
};

// Parses "a,b" or "a:4,b:4". An IPv6 address with slots is written "[fe80::1]:4". Throws moe::Error.
std::vector<HostSlots> parseHosts(const std::string& text);

// Fills the hosts in their order. Without any slots, the ranks are spread evenly in blocks. A host without slots among
// hosts with slots has one slot. Without hosts, everything runs here. Throws moe::Error if the slots do not suffice.
std::vector<Placement> placeRanks(int nranks, const std::vector<HostSlots>& hosts, const std::string& thisHost);

// True if `name` is this machine, as far as the name shows.
bool isThisHost(const std::string& name, const std::string& thisHost);

}  // namespace moe::tools
