#include "support/reference/placed_experts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "support/base/index.h"

namespace moe::test {

PlacedExperts drawPlacement(const RouteConfig& config, Rng& rng) {
  PlacedExperts placed{rng.between(1, config.experts), std::vector<int>(at(config.experts), -1)};
  std::vector<int> places(at(config.experts));
  std::iota(places.begin(), places.end(), 0);
  for (int i = config.experts - 1; i > 0; --i) std::swap(places[at(i)], places[at(rng.below(i + 1))]);
  const bool mayBeEmpty = rng.coin();
  const int hot = rng.between(1, placed.logicalExperts);  // the experts that have more than one copy
  for (int i = 0; i < config.experts; ++i) {
    if (i >= placed.logicalExperts && mayBeEmpty && rng.oneIn(4)) continue;
    placed.logicalOf[at(places[at(i)])] = i < placed.logicalExperts ? i : rng.below(hot);
  }
  return placed;
}

PlacedExperts spreadExperts(int experts) {
  PlacedExperts placed{experts, std::vector<int>(at(experts))};
  std::iota(placed.logicalOf.begin(), placed.logicalOf.end(), 0);
  return placed;
}

PlacedExperts ownExperts(int experts, int logicalExperts, int first) {
  PlacedExperts placed{logicalExperts, std::vector<int>(at(experts)), logicalExperts - experts};
  std::iota(placed.logicalOf.begin(), placed.logicalOf.end(), first);
  return placed;
}

int physicalExpert(const RouteConfig& config, const PlacedExperts& placed, int rank, int token, int logical,
                   const std::vector<int>& lost) {
  enum Distance { own, domain, far, kinds };
  std::vector<int> copies[kinds];
  for (int physical = 0; physical < config.experts; ++physical) {
    if (placed.logicalOf[at(physical)] != logical) continue;
    const int other = rankOfExpert(config, physical);
    if (std::find(lost.begin(), lost.end(), other) != lost.end()) continue;
    copies[far].push_back(physical);
    if (config.domainOf(other) == config.domainOf(rank)) copies[domain].push_back(physical);
    if (other == rank) copies[own].push_back(physical);
  }
  if (copies[far].empty()) return -1;
  const std::vector<int>& nearest = *std::find_if(copies, copies + kinds, [](const auto& c) { return !c.empty(); });
  return nearest[at(token + rank) % nearest.size()];
}

std::vector<RouteInput> placedInputs(const RouteConfig& config, const PlacedExperts& placed,
                                     std::vector<RouteInput> inputs, const std::vector<int>& lost) {
  for (int rank = 0; rank < config.nranks; ++rank) {
    std::vector<int>& ids = inputs[at(rank)].experts;
    for (int i = 0; i < static_cast<int>(ids.size()); ++i) {
      int& id = ids[at(i)];
      if (id >= 0 && id < placed.logicalExperts) id = physicalExpert(config, placed, rank, i / config.topk, id, lost);
    }
  }
  return inputs;
}

std::optional<PlacedExperts> otherPlacement(const PlacedExperts& placed) {
  if (placed.foreign > 0) return placed;  // of one rank
  PlacedExperts other = placed;
  std::rotate(other.logicalOf.begin(), other.logicalOf.begin() + 1, other.logicalOf.end());
  if (other == placed) return std::nullopt;
  return other;
}

}  // namespace moe::test
