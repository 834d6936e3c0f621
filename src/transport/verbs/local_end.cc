#include "transport/verbs/local_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace moe::verbs {
namespace {

constexpr std::uint32_t kPacketNumbers = 1U << 24;

}  // namespace

LocalEnd::LocalEnd(const RemoteSetup& setup, std::shared_ptr<const Library> library, const Rail& rail)
    : setup_(setup), rail_(rail), adapter_(std::move(library), rail.plan), region_(registerWindow(adapter_, setup)) {
  describeSelf();
}

void LocalEnd::describeSelf() {
  const int peers = static_cast<int>(setup_.peers.size());
  // Throws if there are too few.
  rail_.plan.queuePairs =
      topology::queuePairsPerPeer(setup_.rdma.queuePairs, adapter_.limits().queuePairs, std::max(peers, 1));
  mine_.connections = connections();
  mine_.address = rail_.plan.address;
  mine_.lid = adapter_.port().lid;
  mine_.mtu = topology::pathMtu(rail_.plan.mtu, mtuBytes(adapter_.port().active_mtu), rail_.plan.mtu);
  rail_.plan.mtu = mine_.mtu;
  mine_.window = reinterpret_cast<std::uint64_t>(setup_.window);
  mine_.windowBytes = setup_.windowBytes;
  mine_.dataKey = region_.keys.data;
  mine_.wordKey = region_.keys.word;
  mine_.queues.resize(placeOf(setup_.nranks, 0, connections()));
}

void LocalEnd::makePairs(int queues, int entries, int requests) {
  for (int i = 0; i < queues; ++i) completions_.push_back(adapter_.makeCompletionQueue(entries));
  std::random_device random;
  for (std::size_t i = 0; i < static_cast<std::size_t>(pairCount()); ++i) {
    const QueuePair& pair = pairs_.emplace_back(adapter_.makeQueuePair(completions(queueOf(i)), requests));
    bring(pair.get(), initialAttributes(rail_.plan.port.port), rankOf(i), "its first state");
    mine_.queues[placeOf(rankOf(i), connectionOf(i), connections())] = {pair->qp_num, random() % kPacketNumbers};
  }
}

std::vector<Card> LocalEnd::join(const std::vector<CardBytes>& cards) {
  std::vector<Card> peers;
  for (std::size_t i = 0; i < setup_.peers.size(); ++i) {
    const int rank = setup_.peers[i];
    Card& peer = peers.emplace_back(readCard(cards.at(static_cast<std::size_t>(rank)), rank));
    const auto each = static_cast<std::size_t>(connections());
    for (std::size_t pair = i * each; pair < (i + 1) * each; ++pair) joinPair(pair, peer);
    peer.queues = {};
  }
  return peers;
}

Card LocalEnd::readCard(const CardBytes& bytes, int rank) const {
  Card card = decode(bytes, rank, setup_.nranks);
  if (card.connections == connections()) return card;
  throw Error(
      moeInvalidUsage,
      fmt::format("RDMA: rank {} has {} queue pairs for each rank, rank {} has {}; say the same on all ranks by "
                  "MOECOMM_RDMA_QUEUE_PAIRS",
                  rank, card.connections, setup_.rank, connections()));
}

// A queue pair to the state that `to` describes.
void LocalEnd::bring(ibv_qp* pair, QueueAttributes to, int rank, const char* state) const {
  const int error = adapter_.library().modifyQp(pair, &to.values, to.mask);
  if (error == 0) return;
  throw adapter_.failure(fmt::format("cannot bring the queue pair to rank {} to {}", rank, state), error);
}

void LocalEnd::joinPair(std::size_t index, const Card& peer) const {
  ibv_qp* pair = pairs_[index].get();
  const int rank = rankOf(index), connection = connectionOf(index);
  const CardQueue& theirs = peer.queue(setup_.rank, connection);
  const std::string apart = topology::whyApart(mine_.address, peer.address);
  if (!apart.empty()) throw Error(moeUnsupported, fmt::format("RDMA: rank {} cannot be reached: {}", rank, apart));
  if (theirs.number == 0) {
    throw Error(moeInternalError, fmt::format("RDMA: rank {} has no queue pair for this rank", rank));
  }
  const bool globalRoute = (adapter_.port().flags & IBV_QPF_GRH_REQUIRED) != 0;
  bring(pair, receiveAttributes(rail_.plan, mine_, peer, theirs, globalRoute), rank, "ready to receive");
  bring(pair, sendAttributes(rail_.plan, mine_.queue(rank, connection).firstPacket), rank, "ready to send");
}

Error LocalEnd::noConnection(const SendFailure& failure, const Card* card) const {
  const std::string there = card == nullptr ? "" : " to " + topology::textOf(card->address.gid);
  return Error(failure.result, fmt::format("no connection from {} at {}{}: {}", adapter_.name(),
                                           topology::textOf(mine_.address.gid), there, failure.text));
}

bool LocalEnd::allHaveLeft() const {
  std::vector<Flag> words(static_cast<std::size_t>(setup_.nranks));
  setup_.backend.readWords(words.data(), reinterpret_cast<const Flag*>(setup_.window + setup_.leaving), words.size());
  return std::all_of(setup_.peers.begin(), setup_.peers.end(),
                     [&](int rank) { return words[static_cast<std::size_t>(rank)] != 0; });
}

}  // namespace moe::verbs
