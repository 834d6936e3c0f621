// The parameters of one adapter's connections: address, MTU, class, queue pairs, and when a peer counts as lost.
#pragma once

#include <cstdint>
#include <string>

#include "topology/gid_choice.h"
#include "topology/nic_list.h"
#include "topology/rdma_settings.h"

namespace moe::topology {

struct RdmaPlan {
  NicName port;
  int rail = 0;
  RdmaAddress address;
  std::string rate;  // "400 Gb/sec (4X NDR)"
  int gidIndex = 0;
  int mtu = 0;
  int trafficClass = 0;
  int serviceLevel = 0;
  int queuePairs = 0;  // per peer
  int ackTimeout = 0;
  int retries = 0;
};

// The largest RDMA MTU that fits an Ethernet interface's: 1024 for 1500, 4096 for 9000. 0 for less than the smallest.
int rdmaMtuOf(long interfaceMtu);

// The least of both ends' MTUs and the allowed maximum. 0 is an end whose MTU is not known.
int pathMtu(int mine, int theirs, int most);

// `wanted` queue pairs (0: 4, or fewer if that makes more than 2048 in all), if the adapter's `limit` (0: not known)
// allows that many for each peer. If no number was asked for, fewer will do. Otherwise, or if there is not one for each
// peer, throws moe::Error.
int queuePairsPerPeer(int wanted, int limit, int peers);

// How long a port tries before it gives a peer up. Real adapters take somewhat longer, never shorter.
double secondsUntilLost(int ackTimeout, int retries);

// The longest usual timeout with which a lost peer is noticed well before a wait of `timeoutMs` ends.
int chooseAckTimeout(std::int64_t timeoutMs, int retries);

// Everything in one line, for the log and for moe_info.
std::string describe(const RdmaPlan& plan);

}  // namespace moe::topology
