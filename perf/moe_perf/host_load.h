// How many ranks share how many processors. moe_perf says so, because ranks that wait for a processor measure the
// system's scheduler too.
#pragma once

#include <cstdint>
#include <vector>

namespace moe::perf {

// The ranks of one host, and the processors that these may use together. All 0: not known.
struct HostLoad {
  int ranks = 0;
  int processors = 0;

  bool shared() const { return ranks > processors && processors > 0; }
};

// This rank's host and its processors, as numbers for busiestHost: a hash of the host's name, then a bit for each
// processor that the rank may use.
std::vector<std::uint64_t> ownShare();

// The host with the fewest processors for each rank. `shares` has one ownShare for each rank. Pure.
HostLoad busiestHost(const std::vector<std::vector<std::uint64_t>>& shares);

}  // namespace moe::perf
