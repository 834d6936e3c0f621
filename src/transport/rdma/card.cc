#include "transport/rdma/card.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace moe::verbs {
namespace {

constexpr std::uint32_t kMagic = 0x56454f4d;  // "MOEV"
constexpr std::uint32_t kVersion = 3;
constexpr std::uint32_t kRailsMax = 64;

// The head as sent. The rails follow it, then the queues.
struct Head {
  std::uint32_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint64_t window = 0;
  std::uint64_t windowBytes = 0;
  std::int32_t connections = 0;
  std::uint32_t railCount = 0;
  std::uint64_t queueCount = 0;
};
struct SentRail {
  std::int32_t layer = 0;
  std::int32_t mtu = 0;
  std::array<std::uint8_t, 16> gid{};
  std::uint32_t dataKey = 0;
  std::uint32_t wordKey = 0;
  std::uint64_t lid = 0;
};
static_assert(sizeof(Head) == 40 && sizeof(SentRail) == 40 && sizeof(CardQueue) == 8);

SentRail packed(const CardRail& rail) {
  return {
      static_cast<std::int32_t>(rail.address.layer), rail.mtu, rail.address.gid, rail.dataKey, rail.wordKey, rail.lid};
}

CardRail unpacked(const SentRail& sent) {
  return {{static_cast<topology::LinkLayer>(sent.layer), sent.gid},
          static_cast<std::uint16_t>(sent.lid),
          sent.mtu,
          sent.dataKey,
          sent.wordKey};
}

constexpr std::uint8_t kHopsMax = 64;
constexpr std::uint8_t kNotReadyTimer = 12;  // 0.64 ms; nothing waits for receives, but the attribute is required
constexpr std::uint8_t kNotReadyRetries = 7;
constexpr std::size_t kSubnetBytes = 8;

void fillRoute(ibv_ah_attr& route, const topology::RdmaPlan& plan, const CardRail& mine, const CardRail& peer,
               bool globalRoute) {
  const bool ethernet = peer.address.layer == topology::LinkLayer::ethernet;
  const bool subnets = std::memcmp(mine.address.gid.data(), peer.address.gid.data(), kSubnetBytes) != 0;
  route.port_num = static_cast<std::uint8_t>(plan.port.port);
  route.sl = static_cast<std::uint8_t>(plan.serviceLevel);
  if (!ethernet) route.dlid = peer.lid;
  if (!ethernet && !subnets && !globalRoute) return;
  route.is_global = 1;
  std::memcpy(route.grh.dgid.raw, peer.address.gid.data(), peer.address.gid.size());
  route.grh.sgid_index = static_cast<std::uint8_t>(plan.gidIndex);
  route.grh.hop_limit = kHopsMax;
  if (ethernet) route.grh.traffic_class = static_cast<std::uint8_t>(plan.trafficClass);
}

}  // namespace

CardBytes encode(const Card& card) {
  Head head;
  head.window = card.window;
  head.windowBytes = card.windowBytes;
  head.connections = card.connections;
  head.railCount = static_cast<std::uint32_t>(card.rails.size());
  head.queueCount = card.queues.size();
  const std::size_t railBytes = card.rails.size() * sizeof(SentRail);
  CardBytes bytes(sizeof head + railBytes + card.queues.size() * sizeof(CardQueue));
  std::memcpy(bytes.data(), &head, sizeof head);
  std::uint8_t* at = bytes.data() + sizeof head;
  for (const CardRail& rail : card.rails) {
    const SentRail sent = packed(rail);
    std::memcpy(at, &sent, sizeof sent);
    at += sizeof sent;
  }
  std::memcpy(at, card.queues.data(), card.queues.size() * sizeof(CardQueue));
  return bytes;
}

Card decode(const CardBytes& bytes, int rank, int nranks) {
  const auto refuse = [rank](const std::string& why) {
    return Error(moeInvalidUsage, fmt::format("RDMA: the card of rank {} {}", rank, why));
  };
  Head head;
  if (bytes.size() < sizeof head) throw refuse(fmt::format("has {} bytes, too few", bytes.size()));
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != kMagic) throw refuse("is of another transport");
  if (head.version != kVersion) throw refuse(fmt::format("is of version {}, not {}", head.version, kVersion));
  if (head.connections < 1) throw refuse(fmt::format("has {} connections with each rank", head.connections));
  if (head.railCount < 1 || head.railCount > kRailsMax) throw refuse(fmt::format("has {} adapters", head.railCount));
  const auto count = static_cast<std::size_t>(nranks) * static_cast<std::size_t>(head.connections);
  if (head.queueCount != count ||
      bytes.size() != sizeof head + head.railCount * sizeof(SentRail) + count * sizeof(CardQueue)) {
    throw refuse(
        fmt::format("is for {} ranks, not {}", head.queueCount / static_cast<unsigned>(head.connections), nranks));
  }
  Card card{head.window, head.windowBytes, head.connections, {}, std::vector<CardQueue>(count)};
  const std::uint8_t* at = bytes.data() + sizeof head;
  for (std::uint32_t i = 0; i < head.railCount; ++i, at += sizeof(SentRail)) {
    SentRail sent;
    std::memcpy(&sent, at, sizeof sent);
    card.rails.push_back(unpacked(sent));
  }
  std::memcpy(card.queues.data(), at, count * sizeof(CardQueue));
  return card;
}

ibv_mtu mtuCode(int bytes) {
  int code = IBV_MTU_256;
  while (code < IBV_MTU_4096 && mtuBytes(static_cast<ibv_mtu>(code + 1)) <= bytes) ++code;
  return static_cast<ibv_mtu>(code);
}

int mtuBytes(ibv_mtu code) {
  return 128 << static_cast<int>(code);
}

QueueAttributes initialAttributes(int port) {
  QueueAttributes to;
  to.values.qp_state = IBV_QPS_INIT;
  to.values.port_num = static_cast<std::uint8_t>(port);
  to.values.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  to.mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  return to;
}

QueueAttributes receiveAttributes(const topology::RdmaPlan& plan, const CardRail& mine, const CardRail& peer,
                                  const CardQueue& theirs, bool globalRoute) {
  QueueAttributes to;
  to.values.qp_state = IBV_QPS_RTR;
  to.values.path_mtu = mtuCode(std::min(mine.mtu, peer.mtu));
  to.values.dest_qp_num = theirs.number;
  to.values.rq_psn = theirs.firstPacket;
  to.values.max_dest_rd_atomic = 1;
  to.values.min_rnr_timer = kNotReadyTimer;
  fillRoute(to.values.ah_attr, plan, mine, peer, globalRoute);
  to.mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
            IBV_QP_MIN_RNR_TIMER;
  return to;
}

QueueAttributes sendAttributes(const topology::RdmaPlan& plan, std::uint32_t firstPacket) {
  QueueAttributes to;
  to.values.qp_state = IBV_QPS_RTS;
  to.values.timeout = static_cast<std::uint8_t>(plan.ackTimeout);
  to.values.retry_cnt = static_cast<std::uint8_t>(plan.retries);
  to.values.rnr_retry = kNotReadyRetries;
  to.values.sq_psn = firstPacket;
  to.values.max_rd_atomic = 1;
  to.mask =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  return to;
}

}  // namespace moe::verbs
