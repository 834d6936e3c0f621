#include "transport/rdma/local_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace moe::verbs {
namespace {

constexpr std::uint32_t kPacketNumbers = 1U << 24;

}  // namespace

LocalEnd::LocalEnd(const RemoteSetup& setup, const std::shared_ptr<const Library>& library,
                   const std::vector<Rail>& rails)
    : setup_(setup) {
  useRails(rails, library);
  describeSelf();
}

// All ranks must have the same number of connections. So the number follows from what the first adapter can have, not
// from the number of adapters.
void LocalEnd::useRails(const std::vector<Rail>& found, const std::shared_ptr<const Library>& library) {
  const int peers = static_cast<int>(setup_.peers.size());
  rails_.push_back(std::make_unique<RailEnd>(setup_, library, found.front()));
  // Throws if there are too few.
  mine_.connections =
      topology::queuePairsPerPeer(setup_.rdma.queuePairs, railOf(0).adapter.limits().queuePairs, std::max(peers, 1));
  const int count = railsFor(connections(), static_cast<int>(found.size()));
  for (int i = 1; i < count; ++i) {
    rails_.push_back(std::make_unique<RailEnd>(setup_, library, found[static_cast<std::size_t>(i)]));
  }
  for (const auto& end : rails_) end->rail.plan.queuePairs = connections() / count;
}

void LocalEnd::describeSelf() {
  for (const auto& end : rails_) {
    topology::RdmaPlan& plan = end->rail.plan;
    const ibv_port_attr& port = end->adapter.port();
    plan.mtu = topology::pathMtu(plan.mtu, mtuBytes(port.active_mtu), plan.mtu);
    mine_.rails.push_back({plan.address, port.lid, plan.mtu, end->region.keys.data, end->region.keys.word});
  }
  mine_.window = reinterpret_cast<std::uint64_t>(setup_.window);
  mine_.windowBytes = setup_.windowBytes;
  mine_.queues.resize(placeOf(setup_.nranks, 0, connections()));
}

void LocalEnd::makePairs(int queues, int entries, int requests) {
  for (int i = 0; i < queues; ++i) completions_.push_back(railOf(i).adapter.makeCompletionQueue(entries));
  std::random_device random;
  for (std::size_t i = 0; i < static_cast<std::size_t>(pairCount()); ++i) {
    const RailEnd& end = railOf(connectionOf(i));
    const QueuePair& pair = pairs_.emplace_back(end.adapter.makeQueuePair(completions(queueOf(i)), requests));
    bring(i, initialAttributes(end.rail.plan.port.port), "its first state");
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
  throw Error(moeInvalidUsage, fmt::format("RDMA: rank {} has {} queue pairs for each rank, rank {} has {}; set "
                                           "MOECOMM_RDMA_QUEUE_PAIRS to the same value on all ranks",
                                           rank, card.connections, setup_.rank, connections()));
}

// Brings a queue pair to the state that `to` describes.
void LocalEnd::bring(std::size_t pair, QueueAttributes to, const char* state) const {
  const Adapter& adapter = railOf(connectionOf(pair)).adapter;
  const int error = adapter.library().modifyQp(pairs_[pair].get(), &to.values, to.mask);
  if (error == 0) return;
  throw adapter.failure(fmt::format("cannot bring the queue pair to rank {} to {}", rankOf(pair), state), error);
}

void LocalEnd::joinPair(std::size_t index, const Card& peer) const {
  const int rank = rankOf(index), connection = connectionOf(index);
  const RailEnd& end = railOf(connection);
  const CardQueue& theirs = peer.queue(setup_.rank, connection);
  const CardRail &here = mine_.railOf(connection), &there = peer.railOf(connection);
  const std::string apart = topology::whyApart(here.address, there.address);
  if (!apart.empty()) {
    throw Error(moeUnsupported,
                fmt::format("RDMA: rank {} cannot be reached from {}: {}", rank, end.adapter.name(), apart));
  }
  if (theirs.number == 0) {
    throw Error(moeInternalError, fmt::format("RDMA: rank {} has no queue pair for this rank", rank));
  }
  const bool globalRoute = (end.adapter.port().flags & IBV_QPF_GRH_REQUIRED) != 0;
  bring(index, receiveAttributes(end.rail.plan, here, there, theirs, globalRoute), "ready to receive");
  bring(index, sendAttributes(end.rail.plan, mine_.queue(rank, connection).firstPacket), "ready to send");
}

Error LocalEnd::noConnection(const SendFailure& failure, const RailEnd& from, const CardRail* to) const {
  const std::string there = to == nullptr ? "" : " to " + topology::textOf(to->address.gid);
  return Error(failure.result, fmt::format("no connection from {} at {}{}: {}", from.adapter.name(),
                                           topology::textOf(from.rail.plan.address.gid), there, failure.text));
}

bool LocalEnd::allHaveLeft() const {
  std::vector<Flag> words(static_cast<std::size_t>(setup_.nranks));
  setup_.backend.readWords(words.data(), reinterpret_cast<const Flag*>(setup_.window + setup_.leaving), words.size());
  return std::all_of(setup_.peers.begin(), setup_.peers.end(),
                     [&](int rank) { return words[static_cast<std::size_t>(rank)] != 0; });
}

}  // namespace moe::verbs
