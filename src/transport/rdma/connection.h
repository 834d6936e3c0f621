// The attributes that bring a queue pair into service. They follow from the plan and both ends' cards. Pure functions.
#pragma once

#include <infiniband/verbs.h>

#include "topology/rdma_plan.h"
#include "transport/rdma/card.h"

namespace moe::verbs {

struct QueueAttributes {
  ibv_qp_attr values{};
  int mask = 0;
};

// To INIT: what peers may do to this rank's memory through the queue pair.
QueueAttributes initialAttributes(int port);

// To ready-to-receive: the path to the peer, whose end is `theirs`. `mine` and `peer` are the adapters at its ends.
// `globalRoute`: InfiniBand packets carry global addresses, because the port or different subnets require them.
QueueAttributes receiveAttributes(const topology::RdmaPlan& plan, const CardRail& mine, const CardRail& peer,
                                  const CardQueue& theirs, bool globalRoute);

// To ready-to-send: when a packet is sent again, and how often.
QueueAttributes sendAttributes(const topology::RdmaPlan& plan, std::uint32_t firstPacket);

// 4096 is IBV_MTU_4096. Other numbers give the next smaller code.
ibv_mtu mtuCode(int bytes);
int mtuBytes(ibv_mtu code);

}  // namespace moe::verbs
