#include "topology/gid_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace moe::topology {
namespace {

constexpr const char* kRoceV2 = "RoCE v2";
constexpr int kSubnetBits = 64;  // bits of the subnet prefix in an InfiniBand GID

GidChoice chosen(const GidEntry& entry) {
  return {entry.index, entry.gid, ""};
}

GidChoice none(std::string reason) {
  return {-1, {}, std::move(reason)};
}

GidChoice chooseIndex(LinkLayer layer, const std::vector<GidEntry>& table, int index) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const auto& entry) { return entry.index == index; });
  if (found == table.end()) return none(fmt::format("its GID {} is empty", index));
  if (layer == LinkLayer::ethernet && found->type != kRoceV2) {
    return none(fmt::format("its GID {} is {}, not RoCE v2", index, found->type));
  }
  return chosen(*found);
}

std::string wishText(const RdmaSettings& settings) {
  const auto family = static_cast<GidFamily>(settings.gidFamily);
  std::string text = family == GidFamily::automatic ? "" : family == GidFamily::ipv4 ? " of IPv4" : " of IPv6";
  if (!settings.gidPrefix.empty()) text += " in " + settings.gidPrefix;
  return text;
}

class Filter {
 public:
  explicit Filter(const RdmaSettings& settings) : family_(static_cast<GidFamily>(settings.gidFamily)) {
    if (settings.gidPrefix.empty()) return;
    const auto prefix = parseGidPrefix(settings.gidPrefix);
    if (!prefix) {
      throw Error(moeInvalidArgument, fmt::format("MOECOMM_RDMA_GID_PREFIX is \"{}\"; expected a prefix like "
                                                  "10.1.0.0/16 or fd00:1::/64",
                                                  settings.gidPrefix));
    }
    prefix_ = *prefix;
  }

  bool passes(const GidEntry& entry) const {
    const bool family = family_ == GidFamily::automatic || (family_ == GidFamily::ipv4) == isIpv4(entry.gid);
    return family && prefix_.covers(entry.gid) && entry.interfaceUp && entry.type == kRoceV2;
  }

 private:
  GidFamily family_;
  GidPrefix prefix_;  // without bits it covers all
};

}  // namespace

GidChoice chooseGid(LinkLayer layer, const std::vector<GidEntry>& table, const RdmaSettings& settings) {
  const Filter filter(settings);
  if (settings.gidIndex >= 0) return chooseIndex(layer, table, settings.gidIndex);
  if (layer == LinkLayer::infiniBand) return chooseIndex(layer, table, 0);
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : table) {
    if (!filter.passes(entry)) continue;
    if (best == nullptr || kindOf(entry.gid) < kindOf(best->gid)) best = &entry;
  }
  if (best != nullptr) return chosen(*best);
  return none(fmt::format("it has no RoCE v2 GID{} on an interface that is up", wishText(settings)));
}

std::string whyApart(const RdmaAddress& mine, const RdmaAddress& theirs) {
  if (mine.layer != theirs.layer) {
    return "one end is InfiniBand, the other Ethernet; set MOECOMM_RDMA_LINK_LAYER to the same value on all ranks";
  }
  if (mine.layer == LinkLayer::infiniBand) {
    if (GidPrefix{mine.gid, kSubnetBits}.covers(theirs.gid)) return "";
    return fmt::format("{} and {} are in different InfiniBand subnets", textOf(mine.gid), textOf(theirs.gid));
  }
  const GidKind kind = kindOf(mine.gid), other = kindOf(theirs.gid);
  if (kind == other) return "";
  return fmt::format(
      "{} is {}, {} is {}; set MOECOMM_RDMA_GID_FAMILY or MOECOMM_RDMA_GID_PREFIX to the same value on all ranks",
      textOf(mine.gid), nameOf(kind), textOf(theirs.gid), nameOf(other));
}

}  // namespace moe::topology
