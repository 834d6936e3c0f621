// Lists of ranks in sentences.
#pragma once

#include <span>
#include <string>

namespace moe::bootstrap {

// "rank 3", "ranks 3, 7", "ranks 0-6, 9 and 40 more". `ranks` is ascending and not empty. It stands for `total` ranks
// if that is more than its size.
std::string describeRanks(std::span<const int> ranks, std::size_t total = 0);

}  // namespace moe::bootstrap
