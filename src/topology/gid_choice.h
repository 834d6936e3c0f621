// Chooses the address of an RDMA port, and says whether two ports can meet with theirs. The functions are pure, and
// both ends of a connection follow the same rule.
#pragma once

#include <string>
#include <vector>

#include "topology/gid.h"
#include "topology/rdma_settings.h"

namespace moe::topology {

struct GidChoice {
  int index = -1;
  Gid gid{};
  std::string reason;  // why there is none ("its GID 3 is empty"); otherwise empty
};

// InfiniBand: index 0. Ethernet: RoCE v2 on an interface that is up; IPv4 before IPv6 before link-local, then the
// lowest index. MOECOMM_RDMA_GID_INDEX, _FAMILY and _PREFIX narrow it. Throws moe::Error if the prefix is malformed.
GidChoice chooseGid(LinkLayer layer, const std::vector<GidEntry>& table, const RdmaSettings& settings);

// One end of a connection.
struct RdmaAddress {
  LinkLayer layer = LinkLayer::ethernet;
  Gid gid{};
};

// Why two ends cannot meet, as a sentence. Empty if they can, or if only an attempt can tell: global addresses of
// different subnets meet where there is a route.
std::string whyApart(const RdmaAddress& mine, const RdmaAddress& theirs);

}  // namespace moe::topology
