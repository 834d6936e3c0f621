#include "routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "draw.h"

namespace moe::perf {
namespace {

// How likely each expert is, as running sums. Popular experts are spread over the ranks by a shuffle.
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

// Adds `expert`, or the next one after it that this token does not use yet.
void addDistinct(std::vector<std::int32_t>& chosen, int expert, int experts) {
  while (std::find(chosen.begin(), chosen.end(), expert) != chosen.end()) expert = (expert + 1) % experts;
  chosen.push_back(expert);
}

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

Route makeRoute(const Options& options, std::uint64_t seed, int nranks, int source, int tokens) {
  const ZipfTable zipf(options.routing == Routing::kZipf ? options.experts : 0, seed);
  // With fewer experts than ranks, some rank has none; the first always has one.
  const int rankExperts = Experts{options.experts, nranks}.onRank(0);
  Route route;
  for (int token = 0; token < tokens; ++token) {
    Draw draw(rowKey(seed, 0, source, token));
    std::vector<std::int32_t> chosen;
    for (int entry = 0; entry < options.topk; ++entry) {
      switch (options.routing) {
        case Routing::kUniform:
          addDistinct(chosen, draw.below(options.experts), options.experts);
          break;
        case Routing::kZipf:
          addDistinct(chosen, zipf.pick(draw.unit()), options.experts);
          break;
        case Routing::kOneRank:
          if (entry < rankExperts) {
            addDistinct(chosen, draw.below(rankExperts), rankExperts);
          } else {
            chosen.push_back(-1);
          }
          break;
        case Routing::kEmpty:
          chosen.push_back(-1);
          break;
      }
      route.weights.push_back(static_cast<float>(1 + draw.below(8)) / 8.0F);
    }
    route.experts.insert(route.experts.end(), chosen.begin(), chosen.end());
  }
  return route;
}

}  // namespace moe::perf
