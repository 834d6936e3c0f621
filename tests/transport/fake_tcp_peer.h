// A rank that speaks to a TCP transport but breaks the rules. It dials, so it must be the lowest rank.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <vector>

#include "bootstrap/net/dialer.h"
#include "bootstrap/net/wire.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/meeting.h"
#include "transport/transport_world.h"

namespace moe::test {

// A card with an address at which nothing listens.
inline CardBytes emptyCard() {
  bootstrap::Address nowhere;
  nowhere.ip = {127, 0, 0, 1};
  nowhere.port = 9;
  return TcpCard{{nowhere}}.encode();
}

class FakeTcpPeer {
 public:
  // Dials the rank with this card and key as `rank` of `nranks`. Waits until it is let in or turned away.
  FakeTcpPeer(const CardBytes& card, int rank, int nranks, const bootstrap::Key& key) {
    const TcpCard known = TcpCard::decode(card, 0);
    constexpr auto kHello = bootstrap::maskOf(bootstrap::FrameType::attach);
    bootstrap::Dialer dialer(known.addresses, key, kHello, 10s);
    bootstrap::PollSet set;
    while (dialer.state() == bootstrap::Dialer::State::trying) turn(set, dialer);
    if (dialer.state() == bootstrap::Dialer::State::failed) return;
    const auto link = dialer.take();
    bootstrap::Writer payload;
    payload.u32(static_cast<std::uint32_t>(nranks));
    link->send(bootstrap::FrameType::attach, rank, payload.view());
    while (!link->closed() && !link->frameReady()) {
      set.clear();
      const std::size_t index = set.add(link->fd(), link->wanted());
      set.wait(1000);
      link->pump(set.at(index));
    }
    if (!link->next()) return;
    std::vector<std::uint8_t> unread;
    socket_ = link->release(&unread);
  }

  bool letIn() const { return static_cast<bool>(socket_); }
  int fd() const { return socket_.get(); }
  void close() { socket_.reset(); }

  // False if the other side has closed the connection.
  bool send(const void* from, std::size_t bytes) {
    const auto* next = static_cast<const std::uint8_t*>(from);
    while (bytes > 0) {
      pollfd entry{fd(), POLLOUT, 0};
      ::poll(&entry, 1, 1000);
      const ssize_t sent = ::send(fd(), next, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EAGAIN) continue;
      if (sent <= 0) return false;
      next += sent;
      bytes -= static_cast<std::size_t>(sent);
    }
    return true;
  }
  bool send(const TcpFrame& frame) { return send(&frame, sizeof frame); }

 private:
  static void turn(bootstrap::PollSet& set, bootstrap::Source& source) {
    set.clear();
    source.arm(set);
    set.wait(std::min(1000, source.waitMsMax()));
    source.serve(set);
  }

  Fd socket_;
};

// Rank 1 of two ranks. Rank 0 is a fake.
class MemberAndFake {
 public:
  explicit MemberAndFake(const MemberOptions& options = {}) : member(1, 2, options) {
    std::thread connecting([&] {
      outcome = outcomeOf([&] { member.connect({emptyCard(), member.transport().card()}); });
    });
    fake = std::make_unique<FakeTcpPeer>(member.transport().card(), 0, 2, tcpKeyOf(1));
    connecting.join();
    EXPECT_EQ(outcome.result, moeSuccess) << outcome.sentence;
    EXPECT_TRUE(fake->letIn());
  }

  Member member;
  std::unique_ptr<FakeTcpPeer> fake;
  Outcome outcome;
};

}  // namespace moe::test
