// The transport itself: its parts in the order in which they need each other, and how they come to life and end.
#include "transport/verbs_transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/poll_until.h"
#include "transport/verbs/carrier.h"
#include "transport/verbs/local_end.h"

namespace moe::verbs {
namespace {

constexpr std::uint32_t kRingSlots = 4096;

int depthFor(const Adapter& adapter, int peers) {
  const AdapterLimits& limits = adapter.limits();
  topology::queuePairsPerPeer(1, limits.queuePairs, peers);  // throws if there are too few
  const int depth = queueDepthFor(peers, limits.requestsPerQueue, limits.completions);
  if (depth >= kQueueDepthMin) return depth;
  throw Error(moeUnsupported, fmt::format("RDMA: {} has no completion queue for {} peers: at most {} entries",
                                          adapter.name(), peers, limits.completions));
}

class VerbsTransport final : public RemoteTransport {
 public:
  VerbsTransport(RemoteSetup setup, std::shared_ptr<const Library> library, const Rail& rail)
      : setup_(std::move(setup)),
        end_(setup_, std::move(library), rail),
        intake_(setup_.backend, kRingSlots),
        depth_(depthFor(end_.adapter(), peerCount())),
        sender_(makeSender()),
        events_(
            end_.adapter(), [this](std::uint32_t pair) { return sender_.rankOf(pair); }, rail.plan.port.port) {
    setup_.log.write(moeLogInfo, "net", "{}; window as {}, {} requests per queue pair",
                     topology::describe(end_.rail().plan), end_.region().how, depth_);
  }

  int kind() const override { return moeTransportVerbs; }
  CardBytes card() const override { return encode(end_.card()); }
  RemoteView view() const override {
    RemoteView view{};
    view.ring[0] = intake_.ring();
    view.rings = 1;
    return view;
  }

  void connect(const std::vector<CardBytes>& cards, const Deadline& deadline) override {
    std::vector<Card> peers = end_.join(cards);
    for (std::size_t i = 0; i < setup_.peers.size(); ++i) {
      sender_.add({setup_.peers[i], std::move(end_.pairs()[i]), std::move(peers[i])});
    }
    reachAll(deadline);
    carrier_ = std::make_unique<Carrier>(
        intake_, sender_, events_, [this](const SendFailure& failure) { report(failure); }, end_.rail().cpus);
  }

  void finish(const Deadline& deadline) noexcept override {
    if (!carrier_) return;
    try {
      const std::uint64_t posted = intake_.posted();
      if (waitFor(deadline, [&] { return carrier_->arrived() >= posted; })) {
        sayGoodbye(posted);
        waitFor(deadline, [&] { return carrier_->arrived() >= posted + setup_.peers.size() && end_.allHaveLeft(); });
      }
    } catch (const Error& error) {
      setup_.log.write(moeLogWarn, "net", "cannot wait for the last puts: {}", error.what());
    }
    carrier_->silence();
  }

 private:
  template <class Condition>
  bool waitFor(const Deadline& deadline, Condition holds) const {
    return pollUntil(deadline, holds, [&] { return carrier_->failed(); });
  }

  // No step runs and the ring is empty, so its next slots are nobody's.
  void sayGoodbye(std::uint64_t posted) {
    for (const int rank : setup_.peers) intake_.append(posted++, goodbyeTo(rank, setup_));
  }

  int peerCount() const { return static_cast<int>(setup_.peers.size()); }

  Sender makeSender() {
    end_.makePairs(depth_ * std::max(peerCount(), 1), depth_);
    return {end_.adapter(),
            {setup_.window, setup_.windowBytes, end_.region().keys.local},
            end_.completions(),
            depth_,
            setup_.nranks};
  }

  // An empty write to each peer: that they answer shows that there is a way, and that they are ready to receive.
  void reachAll(const Deadline& deadline) {
    for (std::size_t queue = 0; queue < sender_.queues().size(); ++queue) {
      sender_.probe(queue);
      sender_.flush();
    }
    while (!sender_.idle()) {
      sender_.poll();
      if (sender_.failure()) throw noConnection(*sender_.failure());
      if (deadline.expired()) {
        throw Error(moeTimeout, fmt::format("rank {} has not answered over RDMA in time", sender_.waitsFor()));
      }
      std::this_thread::yield();
    }
  }

  Error noConnection(const SendFailure& failure) const {
    const auto found = std::find_if(sender_.queues().begin(), sender_.queues().end(),
                                    [&](const PeerQueue& queue) { return queue.rank == failure.rank; });
    return end_.noConnection(failure, found == sender_.queues().end() ? nullptr : &found->card);
  }

  void report(const SendFailure& failure) const {
    setup_.fail(failure.result, fmt::format("rank {}: {}", setup_.rank, failure.text));
  }

  RemoteSetup setup_;
  LocalEnd end_;
  PutIntake intake_;
  int depth_;
  Sender sender_;
  EventWatch events_;
  std::unique_ptr<Carrier> carrier_;  // last: its thread uses the others
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
