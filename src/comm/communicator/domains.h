// How ranks are divided into domains, whose ranks reach each other's memory by loads and stores. Domains are
// consecutive ranks, all of the same size.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace moe {

// Who reaches whom: row a has a byte for each rank b, 1 if rank a reaches rank b's memory. All ranks have the same.
using ReachTable = std::vector<std::vector<std::uint8_t>>;

// Two ranks of one domain, if domains have `size` ranks, of which one does not reach the other; nothing: all do.
std::optional<std::pair<int, int>> apartInDomains(const ReachTable& reach, int size);

// The largest size of domains whose ranks all reach each other. It divides the number of ranks.
int largestDomains(const ReachTable& reach);

}  // namespace moe
