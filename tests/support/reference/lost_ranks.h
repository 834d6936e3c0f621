// Route inputs of a group that goes on without some ranks.
#pragma once

#include <vector>

#include "support/base/rng.h"
#include "support/reference/reference.h"

namespace moe::test {

// The inputs as they count: without tokens of lost ranks, and without entries for their experts. An entry that is
// merged into such an entry is unused too.
std::vector<RouteInput> withoutRanks(const RouteConfig& config, const std::vector<int>& ranks,
                                     std::vector<RouteInput> inputs);

// Lets some tokens name an expert of these ranks twice, which is no fault if the ranks are lost.
void repeatExpertsOf(const RouteConfig& config, const std::vector<int>& ranks, std::vector<RouteInput>& inputs,
                     Rng& rng);

}  // namespace moe::test
