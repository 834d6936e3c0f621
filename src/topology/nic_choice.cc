#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "topology/rdma.h"

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

// Spreads the GPUs of a machine over its adapters' ports: each takes the nearest, and ties go to the least used.
// `perGpu` adapters for each GPU. 0: two if every GPU can have two of its own on its switch, else one. A GPU gets fewer
// only where fewer can be used.
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

// mlx5_2 comes before mlx5_10: shorter numbers first.
std::pair<std::string, int> splitNumber(const std::string& name) {
  const auto digits = std::find_if(name.rbegin(), name.rend(), [](unsigned char c) { return !std::isdigit(c); });
  const std::string number(digits.base(), name.end());
  return {std::string(name.begin(), digits.base()), number.empty() || number.size() > 9 ? -1 : std::stoi(number)};
}

bool comesBefore(const NicName& a, const NicName& b) {
  return std::make_tuple(splitNumber(a.nic), a) < std::make_tuple(splitNumber(b.nic), b);
}

// The link layer of most usable ports; InfiniBand in a tie.
LinkLayer commonLayer(const std::vector<NicPort>& ports) {
  const auto count = [&](LinkLayer layer) {
    return std::count_if(ports.begin(), ports.end(),
                         [layer](const auto& port) { return port.fault.empty() && port.layer == layer; });
  };
  return count(LinkLayer::infiniBand) >= count(LinkLayer::ethernet) ? LinkLayer::infiniBand : LinkLayer::ethernet;
}

// Moves the ports that do not pass to the list of excluded ports.
template <class Passes>
void keepOnly(NicChoice& choice, const std::string& reason, Passes passes) {
  const auto split = std::stable_partition(choice.rails.begin(), choice.rails.end(), passes);
  for (auto port = split; port != choice.rails.end(); ++port) choice.leftOut.push_back({port->name, reason});
  choice.rails.erase(split, choice.rails.end());
}

bool isNearestToAny(const NicPort& port, const std::vector<PciPlace>& gpus, const std::vector<NicPort>& ports) {
  return std::any_of(gpus.begin(), gpus.end(), [&](const PciPlace& gpu) {
    return std::none_of(ports.begin(), ports.end(), [&](const NicPort& other) {
      return wayBetween(gpu, other.place) < wayBetween(gpu, port.place);
    });
  });
}

// Leaves out ports that are nearest to no GPU. Adapters for storage and management are often attached elsewhere.
// Whether a port is up does not matter here, so that the numbers stay the same when one fails.
void keepNearest(NicChoice& choice, const std::vector<PciPlace>& gpus) {
  if (gpus.empty()) return;
  const std::vector<NicPort> all = choice.rails;
  keepOnly(choice, "it is nearest to no GPU", [&](const NicPort& port) { return isNearestToAny(port, gpus, all); });
}

void refuseSlow(std::vector<NicPort>& rails) {
  int fastest = 0;
  for (const NicPort& port : rails) fastest = port.fault.empty() ? std::max(fastest, port.gbps) : fastest;
  for (NicPort& port : rails) {
    if (!port.fault.empty() || port.gbps * 2 >= fastest) continue;
    port.fault = fmt::format("it has {} Gb/s, others have {}", port.gbps, fastest);
  }
}

NicChoice chooseRails(const std::vector<PciPlace>& gpus, std::vector<NicPort> ports, LinkLayer wanted) {
  NicChoice choice;
  const LinkLayer layer = wanted == LinkLayer::automatic ? commonLayer(ports) : wanted;
  choice.rails = std::move(ports);
  keepOnly(choice, fmt::format("its link layer is not {}", nameOf(layer)),
           [layer](const NicPort& port) { return port.layer == layer; });
  keepNearest(choice, gpus);
  refuseSlow(choice.rails);
  return choice;
}

Error refusal(const std::string& what) {
  return Error(moeInvalidArgument, "MOECOMM_NICS names " + what);
}

NicPort findNamed(const NicName& name, const std::vector<NicPort>& ports) {
  std::string known;
  for (const NicPort& port : ports) {
    if (port.name == name) return port;
    known += (known.empty() ? "" : ", ") + textOf(port.name);
  }
  throw refusal(
      fmt::format("{}, which this machine does not have; it has {}", textOf(name), known.empty() ? "none" : known));
}

NicChoice takeNamed(const NicList& list, const std::vector<NicPort>& ports, LinkLayer wanted) {
  NicChoice choice;
  for (const NicName& name : list.order) {
    const NicPort port = findNamed(name, ports);
    if (!port.fault.empty()) throw refusal(fmt::format("{}, but {}", textOf(name), port.fault));
    if (wanted != LinkLayer::automatic && port.layer != wanted) {
      throw refusal(fmt::format("{}, but its link layer is not {}", textOf(name), nameOf(wanted)));
    }
    choice.rails.push_back(port);
    if (port.layer != choice.rails[0].layer) throw refusal("adapters of both link layers");
  }
  for (const NicPort& port : ports) {
    const bool named = std::count(list.order.begin(), list.order.end(), port.name) != 0;
    if (!named) choice.leftOut.push_back({port.name, "it is not in MOECOMM_NICS"});
  }
  return choice;
}

std::vector<std::vector<NicOfGpu>> assignNamed(const NicList& list, const std::vector<PciPlace>& gpus,
                                               const std::vector<NicPort>& rails) {
  const int count = static_cast<int>(gpus.size());
  const int last = list.ofGpus.rbegin()->first;
  if (last >= count) throw refusal(fmt::format("adapters for GPU {}; the machine has {} GPUs", last, count));
  std::vector<std::vector<NicOfGpu>> ofGpus(gpus.size());
  for (int gpu = 0; gpu < count; ++gpu) {
    const auto names = list.ofGpus.find(gpu);
    if (names == list.ofGpus.end()) throw refusal(fmt::format("no adapter for GPU {}", gpu));
    const auto index = static_cast<std::size_t>(gpu);
    for (std::size_t rail = 0; rail < rails.size(); ++rail) {
      if (std::count(names->second.begin(), names->second.end(), rails[rail].name) == 0) continue;
      ofGpus[index].push_back({static_cast<int>(rail), distanceBetween(gpus[index], rails[rail].place)});
    }
  }
  return ofGpus;
}

std::string whyNone(const NicChoice& choice) {
  std::string why;
  const auto add = [&why](const NicName& name, const std::string& reason) {
    why += fmt::format("{}{}: {}", why.empty() ? "no RDMA port can be used: " : "; ", textOf(name), reason);
  };
  for (const NicPort& port : choice.rails) {
    if (port.fault.empty()) return "";
    add(port.name, port.fault);
  }
  for (const LeftOut& port : choice.leftOut) add(port.name, port.reason);
  return why.empty() ? "this machine has no RDMA adapter" : why;
}

}  // namespace

NicChoice chooseNics(const std::vector<PciPlace>& gpus, std::vector<NicPort> ports, const RdmaSettings& settings) {
  std::sort(ports.begin(), ports.end(), [](const auto& a, const auto& b) { return comesBefore(a.name, b.name); });
  const NicList list = parseNicList(settings.nics);
  const auto wanted = static_cast<LinkLayer>(settings.linkLayer);
  NicChoice choice = list.order.empty() ? chooseRails(gpus, std::move(ports), wanted) : takeNamed(list, ports, wanted);
  choice.reason = whyNone(choice);
  choice.ofGpus =
      list.ofGpus.empty() ? assignNics(gpus, choice.rails, settings.nicsPerGpu) : assignNamed(list, gpus, choice.rails);
  return choice;
}

}  // namespace moe::topology
