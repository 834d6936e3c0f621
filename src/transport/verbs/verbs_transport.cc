// The transport itself: its parts in the order in which they need each other, and how they come to life and end.
#include "transport/verbs_transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/poll_until.h"
#include "transport/verbs/poster.h"

namespace moe::verbs {
namespace {

constexpr int kThreads = 2;

int depthFor(const Adapter& adapter, int pairs) {
  const AdapterLimits& limits = adapter.limits();
  const int depth = queueDepthFor(pairs, limits.requestsPerQueue, limits.completions);
  if (depth >= kQueueDepthMin) return depth;
  throw Error(moeUnsupported, fmt::format("RDMA: {} has no completion queue for {} queue pairs: at most {} entries",
                                          adapter.name(), pairs, limits.completions));
}

class VerbsTransport final : public RemoteTransport {
 public:
  VerbsTransport(RemoteSetup setup, std::shared_ptr<const Library> library, const Rail& rail)
      : setup_(std::move(setup)),
        end_(setup_, std::move(library), rail),
        events_(
            end_.adapter(), [this](std::uint32_t pair) { return rankOf(pair); }, rail.plan.port.port) {
    const int threads = setup_.rdma.threads > 0 ? setup_.rdma.threads : kThreads;
    depth_ = depthFor(end_.adapter(), end_.pairCount());
    end_.makePairs(threads, depth_ * std::max(end_.pairCount(), 1), depth_);
    for (int i = 0; i < threads; ++i) posters_.push_back(std::make_unique<Poster>(setup_, end_, i, depth_));
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
    logChoice();
    const std::vector<Card> peers = end_.join(cards);
    for (std::size_t i = 0; i < end_.pairs().size(); ++i) {
      const Card& peer = peers[i / static_cast<std::size_t>(end_.connections())];
      posters_[static_cast<std::size_t>(end_.queueOf(i))]->add(
          {end_.rankOf(i), end_.connectionOf(i), std::move(end_.pairs()[i]), peer});
    }
    reachAll(deadline);
    for (std::size_t i = 0; i < posters_.size(); ++i) {
      posters_[i]->start(
          i == 0 ? &events_ : nullptr, [this](const SendFailure& failure) { report(failure); }, end_.rail().cpus);
    }
    connected_ = true;
  }

  void finish(const Deadline& deadline, const std::function<bool()>& giveUp) noexcept override {
    if (!connected_) return;
    const auto anyFailed = [](const auto& poster) { return poster->failed(); };
    const auto stop = [&] { return std::any_of(posters_.begin(), posters_.end(), anyFailed) || giveUp(); };
    try {
      for (const auto& poster : posters_) poster->countPosted();
      if (pollUntil(
              deadline, [&] { return allHaveArrived(); }, stop)) {
        sayGoodbye();
        pollUntil(
            deadline, [&] { return allHaveArrived() && end_.allHaveLeft(); }, stop);
      }
    } catch (const Error& error) {
      setup_.log.write(moeLogWarn, "net", "cannot wait for the last puts: {}", error.what());
    }
    for (const auto& poster : posters_) poster->silence();
  }

 private:
  // All that was chosen, once it is sure that this transport is used.
  void logChoice() const {
    setup_.log.write(moeLogInfo, "net", "{}; window as {}, {} requests per queue pair, {} threads",
                     topology::describe(end_.rail().plan), end_.region().how, depth_, posters_.size());
  }

  bool allHaveArrived() const {
    return std::all_of(posters_.begin(), posters_.end(), [](const auto& poster) { return poster->allHaveArrived(); });
  }

  // No step runs and the rings are empty, so their next slots are nobody's.
  void sayGoodbye() {
    const RemoteView rings = view();
    for (const int rank : setup_.peers) {
      const Put word = goodbyeTo(rank, setup_);
      posters_[static_cast<std::size_t>(rings.ringOf(word))]->append(word);
    }
  }

  // An empty write on each connection: that peers answer shows that there is a way, and that they are ready to receive.
  void reachAll(const Deadline& deadline) {
    for (const auto& poster : posters_) poster->probe();
    for (const auto& poster : posters_) {
      Sender& sender = poster->sender();
      while (!sender.idle()) {
        sender.poll();
        if (sender.failure()) throw noConnection(sender, *sender.failure());
        if (deadline.expired()) {
          throw Error(moeTimeout, fmt::format("rank {} has not answered over RDMA in time", sender.waitsFor()));
        }
        std::this_thread::yield();
      }
    }
  }

  Error noConnection(const Sender& sender, const SendFailure& failure) const {
    const auto found = std::find_if(sender.queues().begin(), sender.queues().end(),
                                    [&](const PeerQueue& queue) { return queue.rank == failure.rank; });
    return end_.noConnection(failure, found == sender.queues().end() ? nullptr : &found->card);
  }

  int rankOf(std::uint32_t queuePair) const {
    int rank = -1;
    for (const auto& poster : posters_) rank = std::max(rank, poster->sender().rankOf(queuePair));
    return rank;
  }

  void report(const SendFailure& failure) const {
    setup_.fail(failure.result, fmt::format("rank {}: {}", setup_.rank, failure.text));
  }

  RemoteSetup setup_;
  LocalEnd end_;
  EventWatch events_;
  int depth_ = 0;
  bool connected_ = false;
  std::vector<std::unique_ptr<Poster>> posters_;  // last: their threads use the others
};

}  // namespace
}  // namespace moe::verbs

namespace moe {

std::unique_ptr<RemoteTransport> makeVerbsTransport(RemoteSetup setup, const std::filesystem::path& sys) {
  std::shared_ptr<const verbs::Library> library = verbs::Library::load();
  const verbs::Rail rail = verbs::chooseRail(setup, sys);
  return std::make_unique<verbs::VerbsTransport>(std::move(setup), std::move(library), rail);
}

}  // namespace moe
