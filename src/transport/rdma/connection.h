// The attributes that a queue pair gets on its way to work. They follow from the plan and both ends' cards. Pure
// functions.
#pragma once

#include <infiniband/verbs.h>

#include "topology/rdma_plan.h"
#include "transport/rdma/card.h"

namespace moe::verbs {

struct QueueAttributes {
  ibv_qp_attr values{};
  int mask = 0;
};

// To INIT: what peers may do to this rank's memory through it.
QueueAttributes initialAttributes(int port);

// To ready-to-receive: the way to the peer, whose end is `theirs`. `mine` and `peer` are the adapters at its ends.
// `globalRoute`: InfiniBand packets carry global addresses, because the port or different subnets require them.
QueueAttributes receiveAttributes(const topology::RdmaPlan& plan, const CardRail& mine, const CardRail& peer,
                                  const CardQueue& theirs, bool globalRoute);

// To ready-to-send: when a packet is sent again, and how often.
QueueAttributes sendAttributes(const topology::RdmaPlan& plan, std::uint32_t firstPacket);

// 4096 is IBV_MTU_4096. For other numbers it is the next smaller one.
ibv_mtu mtuCode(int bytes);
int mtuBytes(ibv_mtu code);

}  // namespace moe::verbs
