#include "transport/rdma/connection.h"

#include <algorithm>
#include <cstring>

namespace moe::verbs {
namespace {

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
