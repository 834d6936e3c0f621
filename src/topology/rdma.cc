#include "topology/rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace moe::topology {
namespace {

struct FoundPort {
  const RdmaPort* port = nullptr;
  LinkLayer layer = LinkLayer::ethernet;
  GidChoice gid;
};
using FoundPorts = std::map<NicName, FoundPort>;

FoundPorts findPorts(const std::vector<Nic>& nics, const RdmaSettings& settings) {
  FoundPorts found;
  for (const Nic& nic : nics) {
    for (const RdmaPort& port : nic.ports) {
      const LinkLayer layer = layerOf(port.linkLayer);
      found[{nic.name, port.number}] = {&port, layer, chooseGid(layer, port.gids, settings)};
    }
  }
  return found;
}

NicPort candidate(const NicName& name, const FoundPort& found, const PciTree& tree) {
  NicPort candidate{name, found.layer, std::atoi(found.port->rate.c_str()), {}, found.gid.reason};
  if (found.port->state != "ACTIVE") candidate.fault = fmt::format("its state is {}", found.port->state);
  const auto place = tree.nics.find(name.nic);
  if (place != tree.nics.end()) candidate.place = place->second;
  return candidate;
}

int mtuOf(const FoundPort& found) {
  for (const GidEntry& entry : found.port->gids) {
    if (entry.index == found.gid.index) return rdmaMtuOf(entry.interfaceMtu);
  }
  return 0;
}

RdmaPlan planRail(int rail, const NicName& name, const FoundPort& found, const RdmaSettings& settings,
                  std::int64_t timeoutMs) {
  RdmaPlan plan;
  plan.port = name;
  plan.rail = rail;
  plan.address = {found.layer, found.gid.gid};
  plan.rate = found.port->rate;
  plan.gidIndex = found.gid.index;
  // sysfs does not show the MTU of InfiniBand, and an adapter's limits are unknown until it is opened.
  plan.mtu = pathMtu(found.layer == LinkLayer::ethernet ? mtuOf(found) : 0, 0, settings.mtu);
  plan.trafficClass = settings.trafficClass;
  plan.serviceLevel = settings.serviceLevel;
  plan.queuePairs = queuePairsPerPeer(settings.queuePairs, 0, 0);
  plan.ackTimeout = settings.ackTimeout > 0 ? settings.ackTimeout : chooseAckTimeout(timeoutMs, settings.retries);
  plan.retries = settings.retries;
  return plan;
}

}  // namespace

Rdma planRdma(const Topology& topology, const RdmaSettings& settings, std::int64_t timeoutMs) {
  const FoundPorts found = findPorts(topology.nics, settings);
  std::vector<PciPlace> gpus;
  for (const PciTree::Gpu& gpu : topology.pci.gpus) gpus.push_back(gpu.place);
  std::vector<NicPort> candidates;
  for (const auto& [name, port] : found) candidates.push_back(candidate(name, port, topology.pci));
  Rdma rdma{chooseNics(gpus, std::move(candidates), settings), {}};
  for (std::size_t rail = 0; rail < rdma.nics.rails.size(); ++rail) {
    const NicPort& port = rdma.nics.rails[rail];
    if (!port.fault.empty()) continue;
    rdma.plans.push_back(planRail(static_cast<int>(rail), port.name, found.at(port.name), settings, timeoutMs));
  }
  return rdma;
}

int indexOfGpu(const PciTree& tree, const std::string& busId) {
  const auto found =
      std::find_if(tree.gpus.begin(), tree.gpus.end(), [&](const auto& gpu) { return gpu.busId == busId; });
  return found == tree.gpus.end() ? -1 : static_cast<int>(found - tree.gpus.begin());
}

}  // namespace moe::topology
