// This rank's end of its connections, whoever posts to them: the port, the window as the adapter sees it, the queue
// pairs for each peer, and how both ends are joined.
#pragma once

#include <memory>
#include <vector>

#include "base/deadline.h"
#include "transport/remote.h"
#include "transport/verbs/adapter.h"
#include "transport/verbs/card.h"
#include "transport/verbs/connection.h"
#include "transport/verbs/memory_region.h"
#include "transport/verbs/rail.h"
#include "transport/verbs/send_failure.h"

namespace moe::verbs {

class LocalEnd {
 public:
  // Opens the adapter and registers the window. `setup` outlives it.
  LocalEnd(const RemoteSetup& setup, std::shared_ptr<const Library> library, const Rail& rail);

  // connections() for each of setup.peers. Connection c of rank r completes to the completion queue number
  // (r * connections() + c) % queues, with `entries` entries each.
  void makePairs(int queues, int entries, int requests);
  // Joins them to those that the peers name. Returns the peers' cards, in the order of setup.peers, without their
  // queues.
  std::vector<Card> join(const std::vector<CardBytes>& cards);

  // Queue pairs for each peer, and for all.
  int connections() const { return rail_.plan.queuePairs; }
  int pairCount() const { return static_cast<int>(setup_.peers.size()) * connections(); }
  // The rank that pairs()[pair] leads to.
  int rankOf(std::size_t pair) const { return setup_.peers[pair / static_cast<std::size_t>(connections())]; }
  int connectionOf(std::size_t pair) const { return static_cast<int>(pair) % connections(); }
  int queueOf(std::size_t pair) const {
    return (rankOf(pair) * connections() + connectionOf(pair)) % static_cast<int>(completions_.size());
  }

  const Rail& rail() const { return rail_; }
  const Adapter& adapter() const { return adapter_; }
  const WindowRegion& region() const { return region_; }
  const Card& card() const { return mine_; }
  ibv_cq* completions(int queue) const { return completions_[static_cast<std::size_t>(queue)].get(); }
  std::vector<QueuePair>& pairs() { return pairs_; }  // [setup.peers][connections]

  // For a failure of the first write to a peer; `card` is the peer's, or NULL.
  Error noConnection(const SendFailure& failure, const Card* card) const;
  // Every peer has said its last word to this rank, at setup.leaving. Throws what the backend throws.
  bool allHaveLeft() const;

 private:
  void describeSelf();
  void bring(ibv_qp* pair, QueueAttributes to, int rank, const char* state) const;
  Card readCard(const CardBytes& bytes, int rank) const;
  void joinPair(std::size_t pair, const Card& peer) const;

  const RemoteSetup& setup_;
  Rail rail_;
  Adapter adapter_;
  WindowRegion region_;
  std::vector<CompletionQueue> completions_;
  std::vector<QueuePair> pairs_;
  Card mine_;
};

// This rank's last word to a peer: a peer's queue pair must be there as long as anybody writes to it.
inline Put goodbyeTo(int peer, const RemoteSetup& setup) {
  return putWord(peer, setup.leaving + static_cast<std::uint64_t>(setup.rank) * sizeof(Flag), flagWord(1));
}

}  // namespace moe::verbs
