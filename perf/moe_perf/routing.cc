#include "perf/moe_perf/routing.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "perf/payload/draw.h"

namespace moe::perf {
namespace {

// The probabilities of the experts as running sums. A shuffle spreads popular experts over the ranks.
class ZipfTable {
 public:
  ZipfTable(int experts, std::uint64_t seed) : order_(static_cast<std::size_t>(experts)) {
    std::iota(order_.begin(), order_.end(), 0);
    std::sort(order_.begin(), order_.end(), [seed](int a, int b) {
      return mix(seed ^ static_cast<std::uint64_t>(a) * 0x9e3779b97f4a7c15ULL) <
             mix(seed ^ static_cast<std::uint64_t>(b) * 0x9e3779b97f4a7c15ULL);
    });
    double sum = 0;
    for (int i = 0; i < experts; ++i) sums_.push_back(sum += 1.0 / (i + 1));
  }

  int pick(double unit) const {
    const auto at = std::upper_bound(sums_.begin(), sums_.end(), unit * sums_.back());
    return order_[static_cast<std::size_t>(
        std::min<std::ptrdiff_t>(at - sums_.begin(), static_cast<std::ptrdiff_t>(order_.size()) - 1))];
  }

 private:
  std::vector<int> order_;
  std::vector<double> sums_;
};

// Adds what `draw` returns, and draws again if the token already has that expert: experts are drawn without
// replacement.
template <class DrawExpert>
void addDistinct(std::vector<std::int32_t>& chosen, DrawExpert draw) {
  std::int32_t expert = draw();
  while (std::find(chosen.begin(), chosen.end(), expert) != chosen.end()) expert = draw();
  chosen.push_back(expert);
}

// The `count` indices with the highest scores, best first.
std::vector<std::int32_t> bestOf(const std::vector<double>& scores, std::vector<std::int32_t> candidates, int count) {
  const auto kept = std::min<std::ptrdiff_t>(count, static_cast<std::ptrdiff_t>(candidates.size()));
  std::partial_sort(candidates.begin(), candidates.begin() + kept, candidates.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
                    });
  candidates.resize(static_cast<std::size_t>(kept));
  return candidates;
}

// Imitates a router with limited groups. Experts have scores, and the router takes the best experts of the groups whose
// two best experts score most. Entries stay unused if these groups have too few experts.
std::vector<std::int32_t> drawInGroups(const Options& options, Draw& draw) {
  const Experts groups{options.experts, options.groups};
  std::vector<double> scores, ofGroups;
  std::vector<std::int32_t> all, candidates;
  for (int expert = 0; expert < options.experts; ++expert) scores.push_back(draw.unit());
  for (std::int32_t group = 0; group < groups.nranks; ++group) {
    std::vector<double> own(scores.begin() + groups.first(group), scores.begin() + groups.first(group + 1));
    std::sort(own.begin(), own.end(), std::greater<>());
    ofGroups.push_back(own[0] + (own.size() > 1 ? own[1] : 0));
    all.push_back(group);
  }
  for (const std::int32_t group : bestOf(ofGroups, all, options.groupsPerToken)) {
    for (int expert = groups.first(group); expert < groups.first(group + 1); ++expert) candidates.push_back(expert);
  }
  std::vector<std::int32_t> chosen = bestOf(scores, candidates, options.topk);
  chosen.resize(static_cast<std::size_t>(options.topk), -1);
  return chosen;
}

// The parameters by which every token of a route is drawn.
class Router {
 public:
  Router(const Options& options, std::uint64_t seed, int nranks)
      : options_(options),
        zipf_(options.routing == Routing::zipf ? options.experts : 0, seed),
        rankExperts_(Experts{options.experts, nranks}.onRank(0)) {}

  std::vector<std::int32_t> expertsOf(Draw& draw) const {
    switch (options_.routing) {
      case Routing::uniform:
        return drawDistinct(options_.topk, [&] { return draw.below(options_.experts); });
      case Routing::zipf:
        return drawDistinct(options_.topk, [&] { return zipf_.pick(draw.unit()); });
      case Routing::groupLimited:
        return drawInGroups(options_, draw);
      case Routing::oneRank:
        return drawDistinct(std::min(options_.topk, rankExperts_), [&] { return draw.below(rankExperts_); });
      case Routing::empty:
      case Routing::file:
        break;
    }
    return drawDistinct(0, [] { return 0; });
  }

 private:
  // Draws the first `count` entries. The others stay unused.
  template <class DrawExpert>
  std::vector<std::int32_t> drawDistinct(int count, DrawExpert draw) const {
    std::vector<std::int32_t> chosen;
    for (int entry = 0; entry < count; ++entry) addDistinct(chosen, draw);
    chosen.resize(static_cast<std::size_t>(options_.topk), -1);
    return chosen;
  }

  const Options& options_;
  ZipfTable zipf_;
  int rankExperts_;  // with fewer experts than ranks some rank has none, but the first always has one
};

}  // namespace

int Experts::first(int rank) const {
  return rank * (count / nranks) + std::min(rank, count % nranks);
}

int Experts::rankOf(int expert) const {
  int low = 0;
  int high = nranks;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (first(middle) <= expert ? low : high) = middle;
  }
  return low;
}

Route makeRoute(const Options& options, std::uint64_t seed, int nranks, int source, int tokens, std::uint64_t step) {
  const Router router(options, seed, nranks);
  Route route;
  for (int token = 0; token < tokens; ++token) {
    Draw draw(rowKey(seed, 0, source, token));
    const bool recorded = options.routing == Routing::file;
    const std::vector<std::int32_t> chosen =
        recorded ? options.routingFile->of(step, source, token) : router.expertsOf(draw);
    route.experts.insert(route.experts.end(), chosen.begin(), chosen.end());
    for (int entry = 0; entry < options.topk; ++entry) {
      route.weights.push_back(static_cast<float>(1 + draw.below(8)) / 8.0F);
    }
  }
  return route;
}

}  // namespace moe::perf
