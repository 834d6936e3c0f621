#include "topology/rdma_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace moe::topology {
namespace {

constexpr std::array kMtus = {4096, 2048, 1024, 512, 256};
constexpr int kRoceHeaderBytes = 96;  // the kernel reserves this much: GRH 40, UDP 8, BTH 12, and the largest others
constexpr int kQueuePairs = 4;
constexpr int kQueuePairsInAll = 2048;  // adapters get slower when many are in use: docs/internals/scaling.md

// 67 ms and 1.07 s. Shorter timeouts take congestion for loss; longer ones notice a dead peer late.
constexpr int kAckTimeoutMin = 14;
constexpr int kAckTimeoutMax = 18;

}  // namespace

int rdmaMtuOf(long interfaceMtu) {
  const auto fits = std::find_if(kMtus.begin(), kMtus.end(),
                                 [interfaceMtu](int mtu) { return mtu + kRoceHeaderBytes <= interfaceMtu; });
  return fits == kMtus.end() ? 0 : *fits;
}

int pathMtu(int mine, int theirs, int most) {
  for (const int end : {mine, theirs}) most = end > 0 ? std::min(most, end) : most;
  return most;
}

int queuePairsPerPeer(int wanted, int limit, int peers) {
  const int chosen = std::clamp(kQueuePairsInAll / std::max(peers, 1), 1, kQueuePairs);
  const int count = wanted > 0 ? wanted : chosen;
  if (limit == 0 || peers == 0 || count <= limit / peers) return count;
  if (wanted == 0 && limit >= peers) return limit / peers;
  throw Error(moeUnsupported, fmt::format("the adapter has {} queue pairs, too few for {} per peer with {} peers",
                                          limit, wanted > 0 ? wanted : 1, peers));
}

double secondsUntilLost(int ackTimeout, int retries) {
  return std::ldexp(4.096e-6, ackTimeout) * (retries + 1);
}

int chooseAckTimeout(std::int64_t timeoutMs, int retries) {
  int chosen = kAckTimeoutMax;
  while (chosen > kAckTimeoutMin && secondsUntilLost(chosen, retries) > static_cast<double>(timeoutMs) / 2e3) --chosen;
  return chosen;
}

std::string describe(const RdmaPlan& plan) {
  const bool ethernet = plan.address.layer == LinkLayer::ethernet;
  const std::string quality = ethernet ? fmt::format("traffic class {}, ", plan.trafficClass) : "";
  return fmt::format(
      "rail {}: {}, {} {}, GID {} ({}), MTU {}, {}service level {}, {} queue pairs per peer, lost after {:.1f} s "
      "(timeout {}, {} retries)",
      plan.rail, textOf(plan.port), nameOf(plan.address.layer), plan.rate, plan.gidIndex, textOf(plan.address.gid),
      plan.mtu, quality, plan.serviceLevel, plan.queuePairs, secondsUntilLost(plan.ackTimeout, plan.retries),
      plan.ackTimeout, plan.retries);
}

}  // namespace moe::topology
