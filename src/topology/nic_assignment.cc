#include "topology/nic_assignment.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace moe::topology {
namespace {

class Assignment {
 public:
  Assignment(const std::vector<PciPlace>& gpus, const std::vector<NicPort>& rails)
      : gpus_(gpus), rails_(rails), users_(rails.size(), 0), ofGpus_(gpus.size()), order_(gpus.size()) {
    std::iota(order_.begin(), order_.end(), 0U);
    // GPUs with a port at their side take it before others choose, so that the others see it in use.
    std::stable_sort(order_.begin(), order_.end(), [&](auto a, auto b) { return shortestWay(a) < shortestWay(b); });
  }

  // Each GPU takes the best port that it does not have yet. Returns whether each found one.
  bool giveOneMore(bool onlyUnusedOnSwitch = false) {
    bool all = true;
    for (const std::size_t gpu : order_) {
      const int rail = bestFor(gpu, onlyUnusedOnSwitch);
      all = all && rail >= 0;
      if (rail < 0) continue;
      ofGpus_[gpu].push_back({rail, distanceBetween(gpus_[gpu], placeOf(rail))});
      users_[static_cast<std::size_t>(rail)] += 1;
    }
    return all;
  }

  std::vector<std::vector<NicOfGpu>> result() && {
    for (auto& nics : ofGpus_) {
      std::sort(nics.begin(), nics.end(), [](const auto& a, const auto& b) { return a.rail < b.rail; });
    }
    return std::move(ofGpus_);
  }

 private:
  const PciPlace& placeOf(int rail) const { return rails_[static_cast<std::size_t>(rail)].place; }

  int shortestWay(std::size_t gpu) const {
    const int rail = bestFor(gpu, false);
    return rail < 0 ? 0 : wayBetween(gpus_[gpu], placeOf(rail));
  }

  bool has(std::size_t gpu, int rail) const {
    const auto& nics = ofGpus_[gpu];
    return std::any_of(nics.begin(), nics.end(), [rail](const auto& nic) { return nic.rail == rail; });
  }

  int bestFor(std::size_t gpu, bool onlyUnusedOnSwitch) const {
    int best = -1;
    std::tuple<int, int> bestCost;
    for (int rail = 0; rail < static_cast<int>(rails_.size()); ++rail) {
      if (!rails_[static_cast<std::size_t>(rail)].fault.empty() || has(gpu, rail)) continue;
      const int users = users_[static_cast<std::size_t>(rail)];
      const bool onSwitch = distanceBetween(gpus_[gpu], placeOf(rail)) == Distance::pcieSwitch;
      if (onlyUnusedOnSwitch && (users > 0 || !onSwitch)) continue;
      const std::tuple cost(wayBetween(gpus_[gpu], placeOf(rail)), users);
      if (best >= 0 && cost >= bestCost) continue;
      best = rail;
      bestCost = cost;
    }
    return best;
  }

  const std::vector<PciPlace>& gpus_;
  const std::vector<NicPort>& rails_;
  std::vector<int> users_;  // number of users of each rail
  std::vector<std::vector<NicOfGpu>> ofGpus_;
  std::vector<std::size_t> order_;
};

}  // namespace

std::vector<std::vector<NicOfGpu>> assignNics(const std::vector<PciPlace>& gpus, const std::vector<NicPort>& rails,
                                              int perGpu) {
  Assignment assignment(gpus, rails);
  for (int i = 0; i < std::max(perGpu, 1); ++i) assignment.giveOneMore();
  if (perGpu == 0) {
    Assignment two = assignment;
    if (two.giveOneMore(true)) return std::move(two).result();
  }
  return std::move(assignment).result();
}

}  // namespace moe::topology
