// The transport itself: its parts in the order in which they need each other, and how they start and end.
#include <fmt/format.h>

#include <algorithm>

#include "base/deadline.h"
#include "transport/ibgda/completer.h"
#include "transport/rdma/pace.h"
#include "transport/transports.h"

namespace moe::ibgda {
namespace {

using verbs::Card;
using verbs::LocalEnd;
using verbs::SendFailure;

class IbgdaTransport final : public RemoteTransport {
 public:
  IbgdaTransport(RemoteSetup setup, const std::shared_ptr<const verbs::Library>& library,
                 std::shared_ptr<const DirectLibrary> direct, const std::vector<verbs::Rail>& rails)
      : setup_(std::move(setup)),
        direct_(std::move(direct)),
        end_(setup_, library, rails),
        queues_(makeQueues()),
        completer_(queues_, events_) {
    for (int i = 0; i < end_.rails(); ++i) {
      const verbs::RailEnd& rail = end_.railOf(i);
      events_.push_back(std::make_unique<verbs::EventWatch>(
          rail.adapter, [this, i](std::uint32_t pair) { return queues_.rankOf(i, pair); }, rail.rail.plan.port.port));
    }
  }

  int kind() const override { return moeTransportIbgda; }
  CardBytes card() const override { return encode(end_.card()); }
  RemoteView view() const override { return queues_.view(); }

  void connect(const std::vector<CardBytes>& cards, const Deadline& deadline) override {
    const verbs::ThreadPlace place = verbs::placeNear(end_.railOf(0).rail.cpus);
    logChoice(place);
    const std::vector<Card> peers = end_.join(cards);
    queues_.aim(peers);
    reachAll(peers, deadline);
    queues_.hand();
    completer_.start(place.cpus, [this](const SendFailure& failure) {
      setup_.fail(failure.result, fmt::format("rank {}: {}", setup_.rank, failure.text));
    });
    connected_ = true;
  }

  bool finish(const Deadline& deadline, const std::function<bool()>& giveUp) noexcept override {
    if (!connected_) return false;
    bool finished = false;
    try {
      const auto stop = [&] { return completer_.failed() || giveUp(); };
      const auto allHaveArrived = [&] { return queues_.waitsFor() < 0; };
      if (queues_.takeBack() && pollUntil(deadline, allHaveArrived, stop)) {
        setup_.allArrived();
        queues_.postWords([&](int peer) { return verbs::goodbyeTo(peer, setup_); }, false, shortly());
        finished = pollUntil(
            deadline, [&] { return allHaveArrived() && end_.allHaveLeft(); }, stop);
      }
    } catch (const Error& error) {
      setup_.log.write(moeLogWarn, "net", "cannot wait for the last puts: {}", error.what());
    }
    completer_.silence();
    return finished;
  }

 private:
  // Logs what was chosen, once this transport is certain to be used: one line for each adapter.
  void logChoice(const verbs::ThreadPlace& place) const {
    const std::uint32_t slots = queues_.count() == 0 ? 0 : queues_.queue(0).slotCount;
    const bool warn = queues_.fellBack() || place.refused;
    for (int i = 0; i < end_.rails(); ++i) {
      const verbs::RailEnd& rail = end_.railOf(i);
      setup_.log.write(warn ? moeLogWarn : moeLogInfo, "net",
                       "{}; window as {}, {} slots per queue pair, a thread {}; {}", topology::describe(rail.rail.plan),
                       rail.region.how, slots, place.text, queues_.how());
    }
  }

  static constexpr WaitOrders kOneSecond{0, 1'000'000'000};
  // The queues are empty when the host posts, so it never waits long.
  static WaitLimit shortly() { return {HostQueueMemory().nanoseconds(), &kOneSecond}; }

  Queues makeQueues() {
    const int pairs = std::max(end_.pairCount() / end_.rails(), 1);
    int requests = Queues::kRequests;
    for (int i = 0; i < end_.rails(); ++i) {
      requests = std::min(requests, requestsOf(end_.railOf(i).adapter, pairs));
    }
    end_.makePairs(end_.rails(), Queues::kSlotsPerRequest * requests * pairs, requests);
    return {setup_, *direct_, end_};
  }

  // The number of requests for each of `pairs` queue pairs of an adapter.
  int requestsOf(const verbs::Adapter& adapter, int pairs) const {
    if (!direct_->isSupported(adapter.context()->device)) {
      throw Error(moeUnsupported,
                  fmt::format("IBGDA: {} is not an mlx5 adapter, so steps cannot post to its queues", adapter.name()));
    }
    const verbs::AdapterLimits& limits = adapter.limits();
    const int requests = std::min(limits.requestsPerQueue, limits.completions / Queues::kSlotsPerRequest / pairs);
    if (requests >= static_cast<int>(mlx5::kPutBatch)) return requests;
    throw Error(moeUnsupported, fmt::format("IBGDA: {} has no completion queue for {} queue pairs: at most {} entries",
                                            adapter.name(), pairs, limits.completions));
  }

  // Sends a first word by each connection, which changes nothing. If the peer's adapter answers, the path works and the
  // peer is ready to receive.
  void reachAll(const std::vector<Card>& peers, const Deadline& deadline) {
    const std::uint64_t own = setup_.leaving + static_cast<std::uint64_t>(setup_.rank) * sizeof(Flag);
    if (!queues_.postWords([&](int peer) { return putWord(peer, own, 0); }, true, shortly())) {
      throw Error(moeTimeout, "IBGDA: cannot post the first write on every connection");
    }
    while (queues_.waitsFor() >= 0) {
      completer_.look();
      if (completer_.failure()) throw noConnection(*completer_.failure(), peers);
      setup_.hearGroup();
      if (deadline.expired()) {
        throw Error(moeTimeout, fmt::format("rank {} has not answered over RDMA in time", queues_.waitsFor()));
      }
      std::this_thread::yield();
    }
  }

  Error noConnection(const SendFailure& failure, const std::vector<Card>& peers) const {
    const auto found = std::find(setup_.peers.begin(), setup_.peers.end(), failure.rank);
    const auto index = static_cast<std::size_t>(found - setup_.peers.begin());
    return end_.noConnection(failure, end_.railOf(failure.rail),
                             index < peers.size() ? &peers[index].railOf(failure.rail) : nullptr);
  }

  RemoteSetup setup_;
  std::shared_ptr<const DirectLibrary> direct_;
  LocalEnd end_;
  Queues queues_;
  Completer::Events events_;
  bool connected_ = false;
  Completer completer_;  // last: its thread uses the others
};

}  // namespace
}  // namespace moe::ibgda

namespace moe {

std::unique_ptr<RemoteTransport> makeIbgdaTransport(RemoteSetup setup, const std::filesystem::path& sys) {
  const std::shared_ptr<const verbs::Library> library = verbs::Library::load();
  const std::vector<verbs::Rail> rails = verbs::chooseRails(setup, sys);
  std::shared_ptr<const ibgda::DirectLibrary> direct = ibgda::DirectLibrary::load();
  return std::make_unique<ibgda::IbgdaTransport>(std::move(setup), library, std::move(direct), rails);
}

}  // namespace moe
