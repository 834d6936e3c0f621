#include "topology/pci_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace moe::topology {
namespace {

using PciAttributes = hwloc_obj_attr_u::hwloc_pcidev_attr_s;
using BridgeAttributes = hwloc_obj_attr_u::hwloc_bridge_attr_s;

constexpr unsigned kNvidia = 0x10de;
constexpr unsigned kDisplay = 0x03;  // class of VGA and 3D controllers

std::string busIdOf(const PciAttributes& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain, pci.bus, pci.dev, pci.func);
}

// A host bridge has no address of its own. The buses below it distinguish it from others.
std::string bridgeName(const BridgeAttributes& bridge) {
  if (bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI) return busIdOf(bridge.upstream.pci);
  return fmt::format("{:04x}:{:02x}", bridge.downstream.pci.domain, bridge.downstream.pci.secondary_bus);
}

PciPlace placeOf(const HwlocTopology& topology, hwloc_obj_t device) {
  PciPlace place;
  hwloc_obj_t above = device->parent;
  hwloc_obj_t processors = above;
  while (processors->cpuset == nullptr) processors = processors->parent;
  for (; above != nullptr && above != processors; above = above->parent) {
    if (above->type == HWLOC_OBJ_BRIDGE) place.bridges.push_back(bridgeName(above->attr->bridge));
  }
  std::reverse(place.bridges.begin(), place.bridges.end());
  place.numaNode = topology.onlyOne(processors->nodeset);
  for (; above != nullptr; above = above->parent) {
    if (above->type == HWLOC_OBJ_PACKAGE) place.package = static_cast<int>(above->os_index);
  }
  return place;
}

int sharedBridges(const PciPlace& a, const PciPlace& b) {
  const auto ends = std::mismatch(a.bridges.begin(), a.bridges.end(), b.bridges.begin(), b.bridges.end());
  return static_cast<int>(ends.first - a.bridges.begin());
}

}  // namespace

const char* nameOf(Distance distance) {
  static constexpr std::array kNames = {"same switch", "same host bridge", "same NUMA node", "same package",
                                        "same machine"};
  return kNames[static_cast<std::size_t>(distance)];
}

Distance distanceBetween(const PciPlace& a, const PciPlace& b) {
  const int shared = sharedBridges(a, b);
  if (shared > 1) return Distance::pcieSwitch;
  if (shared == 1) return Distance::hostBridge;
  if (a.numaNode >= 0 && a.numaNode == b.numaNode) return Distance::numaNode;
  return a.package >= 0 && a.package == b.package ? Distance::package : Distance::machine;
}

int wayBetween(const PciPlace& a, const PciPlace& b) {
  constexpr int kDeepest = 256;  // more bridges than there can be buses
  return static_cast<int>(distanceBetween(a, b)) * kDeepest - sharedBridges(a, b);
}

PciTree readPciTree(const HwlocTopology& topology) {
  PciTree tree;
  tree.reason = topology.reason();
  if (!tree.reason.empty()) return tree;
  for (const hwloc_obj_t pci : topology.objects(HWLOC_OBJ_PCI_DEVICE)) {
    const PciAttributes& attributes = pci->attr->pcidev;
    if (attributes.vendor_id != kNvidia || attributes.class_id >> 8 != kDisplay) continue;
    tree.gpus.push_back({busIdOf(attributes), placeOf(topology, pci)});
  }
  std::sort(tree.gpus.begin(), tree.gpus.end(), [](const auto& a, const auto& b) { return a.busId < b.busId; });
  for (const hwloc_obj_t device : topology.objects(HWLOC_OBJ_OS_DEVICE)) {
    if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS) tree.nics[device->name] = placeOf(topology, device);
  }
  return tree;
}

}  // namespace moe::topology
