// Random placements, and the physical experts for the ids of a route, by a rule of the tests' own.
#pragma once

#include <optional>
#include <vector>

#include "support/base/rng.h"
#include "support/reference/reference.h"

namespace moe::test {

struct PlacedExperts {
  int logicalExperts = 0;
  std::vector<int> logicalOf;  // [config.experts], of each physical expert; -1: the place is empty
  int foreign = 0;             // logical experts that no rank has

  bool operator==(const PlacedExperts&) const = default;
};

PlacedExperts drawPlacement(const RouteConfig& config, Rng& rng);

// Each expert in its own place, as without a placement.
PlacedExperts spreadExperts(int experts);

// Physical experts in order are the logical ones from `first` on. No rank has the others, as with a handle of
// localOnly.
PlacedExperts ownExperts(int experts, int logicalExperts, int first);

// The physical expert that a token of a rank takes for a logical one; -1: no rank has it. Copies on `lost` ranks do not
// count.
int physicalExpert(const RouteConfig& config, const PlacedExperts& placed, int rank, int token, int logical,
                   const std::vector<int>& lost = {});
// Replaces the logical ids of inputs by physical ones. An id that is no expert stays as it is.
std::vector<RouteInput> placedInputs(const RouteConfig& config, const PlacedExperts& placed,
                                     std::vector<RouteInput> inputs, const std::vector<int>& lost = {});

// Another placement of the same experts; none, if there is none that differs.
std::optional<PlacedExperts> otherPlacement(const PlacedExperts& placed);

}  // namespace moe::test
