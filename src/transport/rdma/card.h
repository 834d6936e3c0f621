// The card of a rank, with which others can write to its window: the window's address, the addresses of its adapters,
// and its queue pairs for each rank. It is sent as bytes between machines of one byte order. This file also has the
// attributes that bring a queue pair into service, which follow from the plan and both ends' cards. These are pure
// functions.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <vector>

#include "topology/gid_choice.h"
#include "topology/rdma_plan.h"
#include "transport/remote.h"

namespace moe::verbs {

// A connection's place in lists [nranks][connections].
inline std::size_t placeOf(int rank, int connection, int connections) {
  return static_cast<std::size_t>(rank) * static_cast<std::size_t>(connections) + static_cast<std::size_t>(connection);
}

struct CardQueue {
  std::uint32_t number = 0;       // number of this rank's queue pair for a peer; 0: none
  std::uint32_t firstPacket = 0;  // its first packet sequence number
};

// One of a rank's adapters as peers must know it.
struct CardRail {
  topology::RdmaAddress address;
  std::uint16_t lid = 0;  // InfiniBand
  int mtu = 0;
  std::uint32_t dataKey = 0;
  std::uint32_t wordKey = 0;  // see adapter.h
};

struct Card {
  std::uint64_t window = 0;  // address
  std::uint64_t windowBytes = 0;
  int connections = 1;            // with each rank
  std::vector<CardRail> rails;    // at least one
  std::vector<CardQueue> queues;  // [nranks][connections]

  // A connection of the card's owner with `rank`, and the adapter that it uses.
  const CardQueue& queue(int rank, int connection) const { return queues[placeOf(rank, connection, connections)]; }
  const CardRail& railOf(int connection) const { return rails[static_cast<std::size_t>(connection) % rails.size()]; }
};

CardBytes encode(const Card& card);

// Throws an Error that names `rank`, the card's owner, unless the card has this version and is for `nranks` ranks.
Card decode(const CardBytes& bytes, int rank, int nranks);

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
