#include "support/reference/routing_input.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "support/base/index.h"

namespace moe::test {
namespace {

enum class Load { uniform, skewed, oneRank, oneExpert, groupLimited, kinds };

// Groups of experts, as even as possible. A token uses some of them.
class Groups {
 public:
  Groups(int experts, Rng& rng) : experts_(experts), order_(at(rng.between(1, experts))) {
    std::iota(order_.begin(), order_.end(), 0);
    used_ = rng.between(1, count());
  }

  // Chooses the groups of the next token, which come first in the order.
  void shuffle(Rng& rng) {
    for (int i = 0; i < used_; ++i) std::swap(order_[at(i)], order_[at(rng.between(i, count() - 1))]);
  }
  int drawExpert(Rng& rng) const {
    const int group = order_[at(rng.below(used_))];
    return rng.between(first(group), first(group + 1) - 1);
  }

 private:
  int count() const { return static_cast<int>(order_.size()); }
  int first(int group) const { return group * experts_ / count(); }

  int experts_, used_ = 1;
  std::vector<int> order_;
};

int drawExpert(const RouteConfig& config, Load load, int favourite, const Groups& groups, Rng& rng) {
  switch (load) {
    case Load::groupLimited:
      return groups.drawExpert(rng);
    case Load::skewed:
      return rng.below(rng.between(1, config.experts));
    case Load::oneRank: {
      const int rank = rankOfExpert(config, favourite);
      return firstExpert(config, rank) + rng.below(expertCount(config, rank));
    }
    case Load::oneExpert:
      return favourite;
    default:
      return rng.below(config.experts);
  }
}

}  // namespace

std::vector<RouteInput> drawRouteInputs(const RouteConfig& config, bool weights, Rng& rng) {
  const auto load = static_cast<Load>(rng.below(static_cast<int>(Load::kinds)));
  const int favourite = rng.below(config.experts), unusedOf8 = rng.oneIn(12) ? 8 : rng.oneIn(2) ? 0 : rng.between(1, 5);
  Groups groups(config.experts, rng);
  std::vector<RouteInput> inputs(at(config.nranks));
  for (RouteInput& input : inputs) {
    input.tokens = rng.oneIn(6) ? 0 : rng.coin() ? config.tokensMax : rng.below(config.tokensMax + 1);
    for (int token = 0; token < input.tokens; ++token) {
      const std::size_t begin = input.experts.size();
      if (load == Load::groupLimited) groups.shuffle(rng);
      for (int k = 0; k < config.topk; ++k) {
        int expert = rng.below(8) < unusedOf8 ? -1 : drawExpert(config, load, favourite, groups, rng);
        const auto list = input.experts.begin() + static_cast<std::ptrdiff_t>(begin);
        if (std::find(list, input.experts.end(), expert) != input.experts.end()) expert = -1;
        input.experts.push_back(expert);
        input.weights.push_back(weights ? static_cast<float>(rng.below(2000) - 1000) / 777.0f : 1.0f);
      }
    }
  }
  return inputs;
}

void repeatExperts(const RouteConfig& config, std::vector<RouteInput>& inputs, Rng& rng) {
  for (RouteInput& input : inputs) {
    for (int token = 0; token < input.tokens; ++token) {
      int* list = &input.experts[at(token * config.topk)];
      const bool all = rng.oneIn(8);
      for (int k = 1; k < config.topk; ++k) {
        if (all || rng.oneIn(4)) list[k] = list[all ? 0 : rng.below(k)];
      }
    }
  }
}

std::vector<RouteInput> merged(const RouteConfig& config, std::vector<RouteInput> inputs) {
  for (RouteInput& input : inputs) {
    for (int token = 0; token < input.tokens; ++token) {
      int* list = &input.experts[at(token * config.topk)];
      float* weights = &input.weights[at(token * config.topk)];
      for (int k = 0; k < config.topk; ++k) {
        const auto first = static_cast<int>(std::find(list, list + k, list[k]) - list);
        if (first == k || list[k] < 0) continue;
        weights[first] += weights[k];
        list[k] = -2 - first;
      }
    }
  }
  return inputs;
}

std::vector<RouteInput> withoutExperts(std::vector<RouteInput> inputs) {
  for (RouteInput& input : inputs) std::fill(input.experts.begin(), input.experts.end(), -1);
  return inputs;
}

bool spoilInput(const RouteConfig& config, bool twice, std::vector<RouteInput>& inputs, int culprit, Rng& rng) {
  RouteInput& input = inputs[at(culprit)];
  if (input.tokens == 0 || (twice && config.topk == 1)) return false;
  const int token = rng.below(input.tokens);
  int* list = &input.experts[at(token * config.topk)];
  if (!twice) {
    list[rng.below(config.topk)] = rng.coin() ? config.experts + rng.below(100) : -2 - rng.below(100);
  } else {
    const int later = rng.between(1, config.topk - 1);
    if (list[0] < 0) list[0] = std::max(0, list[later]);
    list[later] = list[0];
  }
  return true;
}

}  // namespace moe::test
