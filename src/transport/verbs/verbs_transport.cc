// The transport itself: its parts in the order in which they need each other, and how they start and end.
#include <fmt/format.h>

#include <algorithm>

#include "base/deadline.h"
#include "transport/transports.h"
#include "transport/verbs/poster.h"

namespace moe::verbs {
namespace {

constexpr int kThreads = 2;

// The requests per queue pair for which all adapters and completion queues have room.
int depthFor(const LocalEnd& end) {
  int least = kQueueDepth;
  for (int i = 0; i < end.rails(); ++i) {
    const Adapter& adapter = end.railOf(i).adapter;
    const int pairs = end.pairCount() / end.rails();
    const int depth = queueDepthFor(pairs, adapter.limits().requestsPerQueue, adapter.limits().completions);
    if (depth < kQueueDepthMin) {
      throw Error(moeUnsupported, fmt::format("RDMA: {} has no completion queue for {} queue pairs: at most {} entries",
                                              adapter.name(), pairs, adapter.limits().completions));
    }
    least = std::min(least, depth);
  }
  return least;
}

class VerbsTransport final : public RemoteTransport {
 public:
  VerbsTransport(RemoteSetup setup, const std::shared_ptr<const Library>& library, const std::vector<Rail>& rails)
      : setup_(std::move(setup)), end_(setup_, library, rails), depth_(depthFor(end_)) {
    const int threads = threadsFor(setup_.rdma.threads > 0 ? setup_.rdma.threads : kThreads, end_.rails());
    end_.makePairs(threads, depth_ * std::max(end_.pairCount() / end_.rails(), 1), depth_);
    for (int i = 0; i < threads; ++i) posters_.push_back(std::make_unique<Poster>(setup_, end_, i, depth_));
    for (int i = 0; i < end_.rails(); ++i) {
      const RailEnd& rail = end_.railOf(i);
      events_.push_back(std::make_unique<EventWatch>(
          rail.adapter, [this, i](std::uint32_t pair) { return rankOf(i, pair); }, rail.rail.plan.port.port));
    }
  }

  int kind() const override { return moeTransportVerbs; }
  CardBytes card() const override { return encode(end_.card()); }
  RemoteView view() const override {
    RemoteView view{};
    for (const auto& poster : posters_) view.ring[view.rings++] = poster->ring();
    view.connections = end_.connections();
    return view;
  }

  void connect(const std::vector<CardBytes>& cards, const Deadline& deadline) override {
    for (int i = 0; i < end_.rails(); ++i) places_.push_back(placeNear(end_.railOf(i).rail.cpus));
    logChoice();
    const std::vector<Card> peers = end_.join(cards);
    for (std::size_t i = 0; i < end_.pairs().size(); ++i) {
      const Card& peer = peers[i / static_cast<std::size_t>(end_.connections())];
      const int connection = end_.connectionOf(i);
      posters_[static_cast<std::size_t>(end_.queueOf(i))]->add({end_.rankOf(i), connection, std::move(end_.pairs()[i]),
                                                                peer.window, peer.windowBytes,
                                                                peer.railOf(connection)});
    }
    reachAll(deadline);
    for (std::size_t i = 0; i < posters_.size(); ++i) {
      posters_[i]->start(
          i < events_.size() ? events_[i].get() : nullptr, [this](const SendFailure& failure) { report(failure); },
          places_[i % places_.size()].cpus);
    }
    connected_ = true;
  }

  bool finish(const Deadline& deadline, const std::function<bool()>& giveUp) noexcept override {
    if (!connected_) return false;
    bool finished = false;
    const auto anyFailed = [](const auto& poster) { return poster->failed(); };
    const auto stop = [&] { return std::any_of(posters_.begin(), posters_.end(), anyFailed) || giveUp(); };
    try {
      for (const auto& poster : posters_) poster->countPosted();
      if (pollUntil(
              deadline, [&] { return allHaveArrived(); }, stop)) {
        setup_.allArrived();
        sayGoodbye();
        finished = pollUntil(
            deadline, [&] { return allHaveArrived() && end_.allHaveLeft(); }, stop);
      }
    } catch (const Error& error) {
      setup_.log.write(moeLogWarn, "net", "cannot wait for the last puts: {}", error.what());
    }
    for (const auto& poster : posters_) poster->silence();
    return finished;
  }

 private:
  // Logs what was chosen, once this transport is certain to be used: one line for each adapter.
  void logChoice() const {
    for (int i = 0; i < end_.rails(); ++i) {
      const RailEnd& rail = end_.railOf(i);
      const ThreadPlace& place = places_[static_cast<std::size_t>(i)];
      setup_.log.write(
          place.refused ? moeLogWarn : moeLogInfo, "net", "{}; window as {}, {} requests per queue pair, {} threads {}",
          topology::describe(rail.rail.plan), rail.region.how, depth_, posters_.size() / places_.size(), place.text);
    }
  }

  bool allHaveArrived() const {
    return std::all_of(posters_.begin(), posters_.end(), [](const auto& poster) { return poster->allHaveArrived(); });
  }

  // No step runs and the rings are empty, so their next slots are free.
  void sayGoodbye() {
    const RemoteView rings = view();
    for (const int rank : setup_.peers) {
      const Put word = goodbyeTo(rank, setup_);
      posters_[static_cast<std::size_t>(rings.ringOf(word))]->append(word);
    }
  }

  // Sends an empty write on each connection. If the peer answers, the path works and the peer is ready to receive.
  void reachAll(const Deadline& deadline) {
    for (const auto& poster : posters_) poster->probe();
    for (std::size_t i = 0; i < posters_.size(); ++i) {
      Sender& sender = posters_[i]->sender();
      while (!sender.idle()) {
        sender.poll();
        if (sender.failure()) throw noConnection(static_cast<int>(i), *sender.failure());
        setup_.hearGroup();
        if (deadline.expired()) {
          throw Error(moeTimeout, fmt::format("rank {} has not answered over RDMA in time", sender.waitsFor()));
        }
        std::this_thread::yield();
      }
    }
  }

  // `index` is the failed poster's.
  Error noConnection(int index, const SendFailure& failure) const {
    const auto& queues = posters_[static_cast<std::size_t>(index)]->sender().queues();
    const auto found =
        std::find_if(queues.begin(), queues.end(), [&](const PeerQueue& queue) { return queue.rank == failure.rank; });
    return end_.noConnection(failure, end_.railOf(index), found == queues.end() ? nullptr : &found->rail);
  }

  // Takes the adapter too, because each adapter numbers its queue pairs by itself.
  int rankOf(int rail, std::uint32_t queuePair) const {
    int rank = -1;
    for (std::size_t i = static_cast<std::size_t>(rail); i < posters_.size(); i += events_.size()) {
      rank = std::max(rank, posters_[i]->sender().rankOf(queuePair));
    }
    return rank;
  }

  void report(const SendFailure& failure) const {
    setup_.fail(failure.result, fmt::format("rank {}: {}", setup_.rank, failure.text));
  }

  RemoteSetup setup_;
  LocalEnd end_;
  int depth_;
  std::vector<ThreadPlace> places_;                  // by adapter
  std::vector<std::unique_ptr<EventWatch>> events_;  // by adapter
  bool connected_ = false;
  std::vector<std::unique_ptr<Poster>> posters_;  // last: their threads use the others
};

}  // namespace
}  // namespace moe::verbs

namespace moe {

std::unique_ptr<RemoteTransport> makeVerbsTransport(RemoteSetup setup, const std::filesystem::path& sys) {
  const std::shared_ptr<const verbs::Library> library = verbs::Library::load();
  const std::vector<verbs::Rail> rails = verbs::chooseRails(setup, sys);
  return std::make_unique<verbs::VerbsTransport>(std::move(setup), library, rails);
}

}  // namespace moe
