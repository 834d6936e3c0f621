// The transport itself: its rings, and how they start and end.
#include <algorithm>

#include "base/deadline.h"
#include "transport/tcp/helper.h"
#include "transport/tcp/meeting.h"
#include "transport/transports.h"

namespace moe {
namespace {

class TcpTransport final : public RemoteTransport {
 public:
  TcpTransport(RemoteSetup setup, const TcpOptions& options) : meeting_(setup), group_(std::move(setup)) {
    const int most = std::clamp(static_cast<int>(group_.peers().size()), 1, kPutRingsMax);
    for (int i = 0; i < std::clamp(options.rings, 1, most); ++i) {
      rings_.push_back(std::make_unique<TcpRing>(group_, options));
    }
  }

  int kind() const override { return moeTransportTcp; }
  CardBytes card() const override { return meeting_.card().encode(); }

  void connect(const std::vector<CardBytes>& cards, const Deadline& deadline) override {
    for (TcpConnection& connection : meeting_.meet(group_.setup(), cards, deadline)) {
      TcpPeer& peer = *group_.peer(connection.rank);
      peer.socket = std::move(connection.socket);
      peer.gone = false;
      TcpRing& ring = ringOf(peer);
      ring.sender.add(peer);
      ring.receiver.add(peer, std::move(connection.unread));
    }
    for (const auto& ring : rings_) {
      ring->receiver.start();
      ring->carrier.start();
    }
    const RemoteSetup& setup = group_.setup();
    setup.log.write(moeLogInfo, "net", "connected to {} ranks over TCP", group_.peers().size());
    if (setup.rank == 0 && setup.backend.loadsKernelsLazily()) {
      setup.log.write(moeLogWarn, "net",
                      "rows cross between domains over TCP, and kernels are loaded at their first launch, which can "
                      "keep them waiting until the timeout: set CUDA_MODULE_LOADING=EAGER");
    }
  }

  RemoteView view() const override {
    RemoteView view{};
    for (const auto& ring : rings_) view.ring[view.rings++] = ring->carrier.ring();
    if (group_.setup().backend.kind() == moeBackendHost) view.helper = helper_.forSteps();
    return view;
  }

  bool finish(const Deadline& deadline, const std::function<bool()>& giveUp) noexcept override {
    try {
      drain(deadline, giveUp);  // after a failure too, or survivors would take the closed connection for a death
    } catch (...) {             // NOLINT: it is reported
      reportCurrentError([this](moeResult_t result, const std::string& sentence) { group_.fail(result, sentence); });
    }
    group_.setFinished();
    return std::all_of(group_.peers().begin(), group_.peers().end(),
                       [](const auto& peer) { return peer->drained.load(); });
  }

 private:
  TcpRing& ringOf(const TcpPeer& peer) { return *rings_[static_cast<std::size_t>(peer.rank) % rings_.size()]; }

  void drain(const Deadline& deadline, const std::function<bool()>& giveUp) {
    // A rank that has given up says so even if puts are stuck behind a peer that takes none. Nobody needs them any
    // more.
    for (const auto& ring : rings_) {
      if (!ring->carrier.waitTaken(deadline, giveUp) && !giveUp()) return;
    }
    for (const auto& peer : group_.peers()) {
      peer->drainWanted = true;
      ringOf(*peer).sender.attend();
    }
    const auto open = [](const auto& peer) { return !peer->drained && !peer->gone; };
    pollUntil(
        deadline, [&] { return std::none_of(group_.peers().begin(), group_.peers().end(), open); }, giveUp);
  }

  TcpMeeting meeting_;
  TcpGroup group_;
  std::vector<std::unique_ptr<TcpRing>> rings_;
  TcpHelper helper_{rings_};
};

}  // namespace

std::unique_ptr<RemoteTransport> makeTcpTransport(RemoteSetup setup) {
  return makeTcpTransport(std::move(setup), {});
}

std::unique_ptr<RemoteTransport> makeTcpTransport(RemoteSetup setup, const TcpOptions& options) {
  return std::make_unique<TcpTransport>(std::move(setup), options);
}

}  // namespace moe
