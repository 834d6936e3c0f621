// This rank's end of its connections, whichever code posts to them: the ports of its adapters, the window registered
// with each, the queue pairs for each peer, and how both ends are joined. Connections use the adapters in turn:
// connection c uses adapter c modulo their number, counted at each end. So two ranks with the same number of adapters
// join those of the same index, and ranks with fewer still connect.
#pragma once

#include <memory>
#include <vector>

#include "base/deadline.h"
#include "transport/rdma/adapter.h"
#include "transport/rdma/card.h"
#include "transport/rdma/rail.h"
#include "transport/rdma/send_failure.h"
#include "transport/remote.h"

namespace moe::verbs {

// One of this rank's adapters, with everything that belongs to it alone.
struct RailEnd {
  RailEnd(const RemoteSetup& setup, std::shared_ptr<const Library> library, const Rail& chosen)
      : rail(chosen), adapter(std::move(library), chosen.plan), region(registerWindow(adapter, setup)) {}

  Rail rail;
  Adapter adapter;
  WindowRegion region;
};

class LocalEnd {
 public:
  // Opens the adapters, possibly only some of them, and registers the window with each. `setup` outlives this object.
  LocalEnd(const RemoteSetup& setup, const std::shared_ptr<const Library>& library, const std::vector<Rail>& rails);

  // Makes connections() queue pairs for each of setup.peers. Connection c of rank r completes to completion queue (r *
  // connections() + c) % queues, with `entries` entries each. `queues` is a multiple of rails(), so that all
  // connections of a completion queue belong to adapter queue % rails().
  void makePairs(int queues, int entries, int requests);
  // Joins them to the queue pairs that the peers name. Returns the peers' cards, in the order of setup.peers, without
  // their queues.
  std::vector<Card> join(const std::vector<CardBytes>& cards);

  // The numbers of queue pairs for each peer, and for all.
  int connections() const { return mine_.connections; }
  int pairCount() const { return static_cast<int>(setup_.peers.size()) * connections(); }
  // The rank that pairs()[pair] leads to.
  int rankOf(std::size_t pair) const { return setup_.peers[pair / static_cast<std::size_t>(connections())]; }
  int connectionOf(std::size_t pair) const { return static_cast<int>(pair) % connections(); }
  int queueOf(std::size_t pair) const {
    return (rankOf(pair) * connections() + connectionOf(pair)) % static_cast<int>(completions_.size());
  }

  int rails() const { return static_cast<int>(rails_.size()); }
  // The adapter of the connection or completion queue with this number.
  const RailEnd& railOf(int number) const { return *rails_[static_cast<std::size_t>(number % rails())]; }
  const Card& card() const { return mine_; }
  ibv_cq* completions(int queue) const { return completions_[static_cast<std::size_t>(queue)].get(); }
  std::vector<QueuePair>& pairs() { return pairs_; }  // [setup.peers][connections]

  // Describes a failure of the first write to a peer, by the adapter `from`. `to` is the peer's adapter, or NULL.
  Error noConnection(const SendFailure& failure, const RailEnd& from, const CardRail* to) const;
  // True when every peer has sent its last word to this rank, at setup.leaving. Throws what the backend throws.
  bool allHaveLeft() const;

 private:
  void useRails(const std::vector<Rail>& found, const std::shared_ptr<const Library>& library);
  void describeSelf();
  void bring(std::size_t pair, QueueAttributes to, const char* state) const;
  Card readCard(const CardBytes& bytes, int rank) const;
  void joinPair(std::size_t pair, const Card& peer) const;

  const RemoteSetup& setup_;
  std::vector<std::unique_ptr<RailEnd>> rails_;
  std::vector<CompletionQueue> completions_;
  std::vector<QueuePair> pairs_;
  Card mine_;
};

// This rank's last word to a peer. A peer's queue pair must exist as long as any rank writes to it.
inline Put goodbyeTo(int peer, const RemoteSetup& setup) {
  return putWord(peer, setup.leaving + static_cast<std::uint64_t>(setup.rank) * sizeof(Flag), flagWord(1));
}

}  // namespace moe::verbs
