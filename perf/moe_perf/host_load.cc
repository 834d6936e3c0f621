#include "perf/moe_perf/host_load.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <map>
#include <string>

#include "base/host_name.h"

namespace moe::perf {
namespace {

constexpr std::size_t kBits = 64;

struct Host {
  int ranks = 0;
  std::vector<std::uint64_t> processors;
};

HostLoad loadOf(const Host& host) {
  HostLoad load{host.ranks, 0};
  for (const std::uint64_t word : host.processors) load.processors += std::popcount(word);
  return load;
}

}  // namespace

std::vector<std::uint64_t> ownShare() {
  std::vector<std::uint64_t> share = {std::hash<std::string>()(thisHostName())};
  cpu_set_t processors;
  CPU_ZERO(&processors);
  if (::sched_getaffinity(0, sizeof processors, &processors) != 0) return share;
  share.resize(1 + CPU_SETSIZE / kBits);
  for (std::size_t i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &processors)) share[1 + i / kBits] |= std::uint64_t{1} << (i % kBits);
  }
  return share;
}

HostLoad busiestHost(const std::vector<std::vector<std::uint64_t>>& shares) {
  std::map<std::uint64_t, Host> hosts;
  for (const std::vector<std::uint64_t>& share : shares) {
    if (share.size() < 2) return {};  // it does not know its processors
    Host& host = hosts[share.front()];
    host.ranks += 1;
    host.processors.resize(std::max(host.processors.size(), share.size() - 1));
    for (std::size_t i = 1; i < share.size(); ++i) host.processors[i - 1] |= share[i];
  }
  HostLoad busiest;
  for (const auto& [name, host] : hosts) {
    const HostLoad load = loadOf(host);
    // As fractions: ranks / processors is the largest.
    if (busiest.ranks == 0 || load.ranks * busiest.processors > busiest.ranks * load.processors) busiest = load;
  }
  return busiest;
}

}  // namespace moe::perf
