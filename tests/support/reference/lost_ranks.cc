#include "support/reference/lost_ranks.h"

#include <algorithm>

#include "support/base/index.h"

namespace moe::test {
namespace {

bool contains(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

}  // namespace

void repeatExpertsOf(const RouteConfig& config, const std::vector<int>& ranks, std::vector<RouteInput>& inputs,
                     Rng& rng) {
  if (config.topk == 1) return;
  for (RouteInput& input : inputs) {
    for (int token = 0; token < input.tokens; ++token) {
      int* list = &input.experts[at(token * config.topk)];
      if (list[0] < 0 || !contains(ranks, rankOfExpert(config, list[0])) || rng.coin()) continue;
      list[rng.between(1, config.topk - 1)] = list[0];
    }
  }
}

std::vector<RouteInput> withoutRanks(const RouteConfig& config, const std::vector<int>& ranks,
                                     std::vector<RouteInput> inputs) {
  for (const int rank : ranks) inputs[at(rank)] = {};
  for (RouteInput& input : inputs) {
    for (std::size_t i = 0; i < input.experts.size(); ++i) {
      int& id = input.experts[i];
      if (id >= 0 && id < config.experts && contains(ranks, rankOfExpert(config, id))) id = -1;
      // An entry that is merged into one without an expert.
      const std::size_t token = i / at(config.topk);
      if (id <= -2 && -2 - id < config.topk && input.experts[token * at(config.topk) + at(-2 - id)] == -1) id = -1;
    }
  }
  return inputs;
}

}  // namespace moe::test
