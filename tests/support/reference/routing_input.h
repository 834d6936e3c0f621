// Random top-k lists: uniform, skewed, all to one expert or rank, to few groups of experts, sparse, empty.
#pragma once

#include <vector>

#include "support/base/rng.h"
#include "support/reference/reference.h"

namespace moe::test {

std::vector<RouteInput> drawRouteInputs(const RouteConfig& config, bool weights, Rng& rng);

// Lets tokens name an expert again, or nothing but one expert, as idle ranks do.
void repeatExperts(const RouteConfig& config, std::vector<RouteInput>& inputs, Rng& rng);
// The input as a handle that merges reads it. A merged entry counts as unused: its id is -2 minus the entry that it
// counts with, whose weight grows.
std::vector<RouteInput> merged(const RouteConfig& config, std::vector<RouteInput> inputs);

// The same tokens, none of which goes anywhere: the result of a refused route.
std::vector<RouteInput> withoutExperts(std::vector<RouteInput> inputs);

// Makes one entry of `culprit` invalid, or makes a token name an expert twice. False if the input has no place for it.
bool spoilInput(const RouteConfig& config, bool twice, std::vector<RouteInput>& inputs, int culprit, Rng& rng);

}  // namespace moe::test
