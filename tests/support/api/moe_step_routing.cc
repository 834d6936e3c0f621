// The routing of a step of moe_step.h: random experts, and placements that change between steps.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "device/view/shape.h"
#include "support/api/moe_step.h"
#include "support/reference/lost_ranks.h"

namespace moe::test {

// Draws a token's entries. Some are unused.
std::vector<int> MoeStep::drawExperts(Rng& rng, bool skewed) const {
  std::vector<int> chosen;
  for (int k = 0; k < case_.topk; ++k) {
    int expert = rng.oneIn(9) ? -1 : rng.below(skewed ? std::max(1, namedExperts() / 4) : namedExperts());
    if (std::find(chosen.begin(), chosen.end(), expert) != chosen.end()) expert = -1;
    chosen.push_back(expert);
  }
  return chosen;
}

// Draws as a router with limited groups does. Experts have scores. A token takes the best groups by their best experts,
// then the best experts of those groups. Entries are unused if there are too few experts.
std::vector<int> MoeStep::drawInGroups(Rng& rng) const {
  const ExpertMap groups{case_.experts, case_.groups};
  std::vector<int> ranking(static_cast<std::size_t>(case_.experts));
  std::iota(ranking.begin(), ranking.end(), 0);
  for (int i = 0; i + 1 < case_.experts; ++i) {
    std::swap(ranking[static_cast<std::size_t>(i)],
              ranking[static_cast<std::size_t>(rng.between(i, case_.experts - 1))]);
  }
  std::set<int> taken;
  std::vector<int> chosen;
  for (const int expert : ranking) {
    if (static_cast<int>(taken.size()) < case_.groupsPerToken) taken.insert(groups.rankOf(expert));
    if (taken.count(groups.rankOf(expert)) != 0 && static_cast<int>(chosen.size()) < case_.topk)
      chosen.push_back(expert);
  }
  chosen.resize(static_cast<std::size_t>(case_.topk), -1);
  return chosen;
}

// Two of three steps change the placement; some of them remove it.
void MoeStep::swapPlacement(const RouteConfig& config) {
  Rng rng(mix(case_.seed, static_cast<std::uint64_t>(iteration_) + (std::uint64_t{84} << 32)));
  if (!case_.placed || (iteration_ > 0 && rng.oneIn(3))) return;
  placed_.reset();
  if (!rng.oneIn(4)) placed_ = drawPlacement(config, rng);
  placedLost_ = context_.lost;
  MOE_EXPECT_OK(tellPlacement(), context_);
}

// Experts in any order, with their ranks. If each place has an expert, they may also be in the order of the places,
// without ranks.
moeResult_t MoeStep::tellPlacement() const {
  if (!placed_) return moeHandleSetPlacement(handle_, nullptr, context_.stream());
  const ExpertMap map{case_.experts, context_.nranks};
  std::vector<std::int32_t> logical, ranks, localExperts;
  for (int i = case_.experts - 1; i >= 0; --i) {
    const int expert = placed_->logicalOf[static_cast<std::size_t>(i)], rank = map.rankOf(i);
    if (expert < 0) continue;
    logical.push_back(expert), ranks.push_back(rank), localExperts.push_back(i - map.first(rank));
  }
  moePlacement_t placement = MOE_PLACEMENT_INITIALIZER;
  placement.logicalExperts = placed_->logicalExperts;
  placement.physicalExperts = static_cast<std::int32_t>(logical.size());
  placement.logical = logical.data();
  if (placement.physicalExperts == case_.experts && iteration_ % 2 == 0) {
    placement.logical = placed_->logicalOf.data();
  } else {
    placement.ranks = ranks.data();
    placement.localExperts = localExperts.data();
  }
  return moeHandleSetPlacement(handle_, &placement, context_.stream());
}

// Converts ids of all ranks' experts to those of this rank's own experts.
void MoeStep::leaveOutForeign(std::vector<int>* ids) const {
  for (int& id : *ids) {
    const bool own = id >= case_.firstOwn && id < case_.firstOwn + case_.experts;
    id = own ? id - case_.firstOwn : -1;
  }
}

void MoeStep::makeRouting() {
  RouteConfig config{context_.nranks, case_.experts,  case_.topk, static_cast<Layout>(case_.layout),
                     bound(),         case_.alignment};
  config.domainSize = case_.allExperts != 0 ? 1 : context_.domainSize();
  config.railSums = case_.mode == moeModeHt;
  config.rowsBudget = case_.rowsBudget;
  swapPlacement(config);
  std::vector<RouteInput> inputs;
  for (int source = 0; source < context_.nranks; ++source) {
    Rng rng(mix(case_.seed, static_cast<std::uint64_t>(iteration_ * 1000 + source)));
    RouteInput in;
    in.tokens = rng.oneIn(5) ? 0 : rng.between(0, bound());
    const bool skewed = rng.oneIn(4);
    for (int t = 0; t < in.tokens; ++t) {
      for (const int expert : case_.groups > 0 ? drawInGroups(rng) : drawExperts(rng, skewed)) {
        in.experts.push_back(expert);
        in.weights.push_back(static_cast<float>(rng.between(1, 64)) / 64.0f);
      }
    }
    inputs.push_back(std::move(in));
  }
  givenExperts_ = inputs[static_cast<std::size_t>(context_.rank)].experts;
  if (case_.allExperts != 0) leaveOutForeign(&inputs[0].experts);
  if (placed_) inputs = placedInputs(config, *placed_, std::move(inputs), placedLost_);
  inputs = withoutRanks(config, context_.lost, std::move(inputs));
  reference_ = std::make_unique<ReferenceRoute>(makeReferenceRoute(config, std::move(inputs)));
}

}  // namespace moe::test
