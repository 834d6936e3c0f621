// The transport itself: its parts in the order in which they need each other, and how they come to life and end.
#include "transport/ibgda_transport.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/poll_until.h"
#include "transport/ibgda/completer.h"

namespace moe::ibgda {
namespace {

using verbs::Card;
using verbs::LocalEnd;
using verbs::SendFailure;

class IbgdaTransport final : public RemoteTransport {
 public:
  IbgdaTransport(RemoteSetup setup, std::shared_ptr<const verbs::Library> library,
                 std::shared_ptr<const DirectLibrary> direct, const verbs::Rail& rail)
      : setup_(std::move(setup)),
        direct_(std::move(direct)),
        end_(setup_, std::move(library), rail),
        queues_(makeQueues()),
        events_(
            end_.adapter(), [this](std::uint32_t pair) { return queues_.rankOf(pair); }, rail.plan.port.port),
        completer_(queues_, events_) {}

  int kind() const override { return moeTransportIbgda; }
  CardBytes card() const override { return encode(end_.card()); }
  RemoteView view() const override { return queues_.view(); }

  void connect(const std::vector<CardBytes>& cards, const Deadline& deadline) override {
    logChoice();
    const std::vector<Card> peers = end_.join(cards);
    queues_.aim(peers);
    reachAll(peers, deadline);
    queues_.hand();
    completer_.start(end_.rail().cpus, [this](const SendFailure& failure) {
      setup_.fail(failure.result, fmt::format("rank {}: {}", setup_.rank, failure.text));
    });
    connected_ = true;
  }

  void finish(const Deadline& deadline, const std::function<bool()>& giveUp) noexcept override {
    if (!connected_) return;
    try {
      const auto stop = [&] { return completer_.failed() || giveUp(); };
      const auto allHaveArrived = [&] { return queues_.waitsFor() < 0; };
      if (queues_.takeBack() && pollUntil(deadline, allHaveArrived, stop)) {
        queues_.postWords([&](int peer) { return verbs::goodbyeTo(peer, setup_); }, false, shortly());
        pollUntil(
            deadline, [&] { return allHaveArrived() && end_.allHaveLeft(); }, stop);
      }
    } catch (const Error& error) {
      setup_.log.write(moeLogWarn, "net", "cannot wait for the last puts: {}", error.what());
    }
    completer_.silence();
  }

 private:
  // All that was chosen, once it is sure that this transport is used.
  void logChoice() const {
    const std::uint32_t slots = queues_.count() == 0 ? 0 : queues_.queue(0).slotCount;
    setup_.log.write(queues_.fellBack() ? moeLogWarn : moeLogInfo, "net",
                     "{}; window as {}, {} slots per queue pair; {}", topology::describe(end_.rail().plan),
                     end_.region().how, slots, queues_.how());
  }

  static constexpr std::uint64_t kNoAbort = 0;
  // The queues are empty when the host posts, so nothing has to wait long.
  static WaitLimit shortly() { return {HostQueueMemory().nanoseconds() + 1'000'000'000, &kNoAbort}; }

  Queues makeQueues() {
    if (!direct_->isSupported(end_.adapter().context()->device)) {
      throw Error(moeUnsupported,
                  fmt::format("IBGDA: {} is no adapter of the kind mlx5, whose queues steps can post to",
                              end_.adapter().name()));
    }
    const verbs::AdapterLimits& limits = end_.adapter().limits();
    const int pairs = std::max(end_.pairCount(), 1);
    const int requests =
        std::min({Queues::kRequests, limits.requestsPerQueue, limits.completions / Queues::kSlotsPerRequest / pairs});
    if (requests < static_cast<int>(mlx5::kPutBatch)) {
      throw Error(moeUnsupported,
                  fmt::format("IBGDA: {} has no completion queue for {} queue pairs: at most {} entries",
                              end_.adapter().name(), pairs, limits.completions));
    }
    end_.makePairs(1, Queues::kSlotsPerRequest * requests * pairs, requests);
    return {setup_, *direct_, end_};
  }

  // A first word by each connection, which changes nothing: that its adapter answers shows that there is a way, and
  // that it is ready to receive.
  void reachAll(const std::vector<Card>& peers, const Deadline& deadline) {
    const std::uint64_t own = setup_.leaving + static_cast<std::uint64_t>(setup_.rank) * sizeof(Flag);
    if (!queues_.postWords([&](int peer) { return putWord(peer, own, 0); }, true, shortly())) {
      throw Error(moeTimeout, "IBGDA: the first words cannot be posted");
    }
    while (queues_.waitsFor() >= 0) {
      completer_.look();
      if (completer_.failure()) throw noConnection(*completer_.failure(), peers);
      if (deadline.expired()) {
        throw Error(moeTimeout, fmt::format("rank {} has not answered over RDMA in time", queues_.waitsFor()));
      }
      std::this_thread::yield();
    }
  }

  Error noConnection(const SendFailure& failure, const std::vector<Card>& peers) const {
    const auto found = std::find(setup_.peers.begin(), setup_.peers.end(), failure.rank);
    const auto index = static_cast<std::size_t>(found - setup_.peers.begin());
    return end_.noConnection(failure, index < peers.size() ? &peers[index] : nullptr);
  }

  RemoteSetup setup_;
  std::shared_ptr<const DirectLibrary> direct_;
  LocalEnd end_;
  Queues queues_;
  verbs::EventWatch events_;
  bool connected_ = false;
  Completer completer_;  // last: its thread uses the others
};

}  // namespace
}  // namespace moe::ibgda

namespace moe {

std::unique_ptr<RemoteTransport> makeIbgdaTransport(RemoteSetup setup, const std::filesystem::path& sys) {
  std::shared_ptr<const verbs::Library> library = verbs::Library::load();
  const verbs::Rail rail = verbs::chooseRail(setup, sys);
  std::shared_ptr<const ibgda::DirectLibrary> direct = ibgda::DirectLibrary::load();
  return std::make_unique<ibgda::IbgdaTransport>(std::move(setup), std::move(library), std::move(direct), rail);
}

}  // namespace moe
