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

// The largest RDMA MTU that fits an Ethernet interface's MTU: 1024 for 1500, 4096 for 9000. 0 if not even the smallest
// fits.
int rdmaMtuOf(long interfaceMtu);

// The smallest of both ends' MTUs and the allowed maximum. 0 stands for an end whose MTU is not known.
int pathMtu(int mine, int theirs, int most);

// The number of queue pairs per peer: `wanted`, or for 0 the default of 4, or fewer if that makes more than 2048 in
// all. If the adapter's `limit` (0: not known) does not allow that many, there are fewer. Throws moe::Error if `wanted`
// is not 0 then, or if there is not one for each peer.
int queuePairsPerPeer(int wanted, int limit, int peers);

// How long a port tries before it gives up a peer. Real adapters take somewhat longer, never shorter.
double secondsUntilLost(int ackTimeout, int retries);

// The longest usual timeout with which a lost peer is noticed well before a wait of `timeoutMs` ends.
int chooseAckTimeout(std::int64_t timeoutMs, int retries);

// The whole plan in one line, for the log and for moe_info.
std::string describe(const RdmaPlan& plan);

}  // namespace moe::topology
