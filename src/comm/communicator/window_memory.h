// The memory of a communicator's windows, which changes while the addresses stay (decision 0121): that of this rank's
// window, and that of peers' windows as they are mapped here. All ranks make the same calls, with an exchange after
// each.
#pragma once

#include <algorithm>
#include <vector>

#include "bootstrap/group/bootstrap.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/rounds.h"

namespace moe {

class WindowMemory {
 public:
  WindowMemory(Comm& comm, bootstrap::Bootstrap& group) : comm_(comm), group_(group) {}

  // No step may run on any rank.
  void unmapPeers() {
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      if (AddressRange* range = rangeOf(rank); range != nullptr && !group_.isLost(rank)) range->unmap();
    }
  }
  // When all ranks have unmapped this window.
  void giveBack() { comm_.room().window->giveBack(); }
  // Takes fresh memory, and passes it to peers in the next rounds.
  void takeAnew() {
    comm_.room().window->takeAnew();
    group_.serveFd(comm_.room().window->fd());
  }
  // When all ranks have taken theirs: tells the new handles of the fabric.
  void exchangeHandles(const char* call) {
    std::vector<Peer>& peers = comm_.peers_;
    if (std::none_of(peers.begin(), peers.end(), [](const Peer& peer) { return peer.card.inFabric != 0; })) return;
    WindowCard& mine = peers[static_cast<std::size_t>(comm_.rank())].card;
    comm_.room().window->describe(&mine);
    const auto all = group_.allGather(asBytes(mine.fabricHandle), call);
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      if (!group_.isLost(rank)) peers[i].card.fabricHandle = readCard<FabricHandle>(all[i], rank);
    }
  }
  // Then.
  void mapPeers(Deadline deadline) {
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      if (rangeOf(rank) != nullptr && !group_.isLost(rank)) mapPeer(rank, deadline);
    }
  }
  // Maps a window, which is not mapped here.
  void mapPeer(int rank, Deadline deadline) {
    const auto fetch = [&](int from) { return group_.fetchFdFrom(from, deadline); };
    rangeOf(rank)->map(comm_.room().window->handleOf(rank, cardOf(comm_.rank()), cardOf(rank), fetch));
  }
  // For all ranks, because one of them has got no memory.
  void giveUp() {
    group_.stopServingFd();
    unmapPeers();
    giveBack();
  }

  // False: a window has no memory, since a call before has not come to its end.
  bool whole() const {
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      if (const AddressRange* range = rangeOf(rank); range != nullptr && !range->mapped()) return false;
    }
    return comm_.room().window->hasMemory();
  }
  // The range of a peer's window; NULL: its mapping cannot change.
  AddressRange* rangeOf(int rank) const { return comm_.peers()[static_cast<std::size_t>(rank)].window.range.get(); }

 private:
  const WindowCard& cardOf(int rank) const { return comm_.peers()[static_cast<std::size_t>(rank)].card; }

  Comm& comm_;
  bootstrap::Bootstrap& group_;
};

}  // namespace moe
