#include "transport/tcp/meeting.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "bootstrap/net/dialer.h"
#include "bootstrap/net/find_addresses.h"
#include "bootstrap/net/lobby.h"
#include "bootstrap/net/wire.h"

namespace moe {
namespace {

using bootstrap::Dialer;
using bootstrap::FrameType;
using bootstrap::Link;

constexpr std::uint32_t kCardMagic = 0x54454f4d;  // "MOET"
constexpr std::uint8_t kCardVersion = 2;
constexpr std::chrono::milliseconds kPerAddress{3000};  // a rank may come to the meeting later than its card
constexpr std::chrono::milliseconds kRedial{50};
constexpr int kHearMs = 50;  // how often to listen to the group, at least
constexpr auto kHello = bootstrap::maskOf(FrameType::attach);

void sendHello(Link& link, const RemoteSetup& setup) {
  bootstrap::Writer payload;
  payload.u32(static_cast<std::uint32_t>(setup.nranks));
  link.send(FrameType::attach, setup.rank, payload.view());
  link.pump(POLLOUT);
}

// The rank that a hello names, if it fits this group; else -1.
int rankIn(const bootstrap::Frame& hello, const RemoteSetup& setup) {
  const auto rank = static_cast<int>(hello.rank);
  const bool fits = bootstrap::Reader(hello.payload).u32() == static_cast<std::uint32_t>(setup.nranks);
  return fits && std::binary_search(setup.peers.begin(), setup.peers.end(), rank) ? rank : -1;
}

// Dials one peer until it has answered our hello.
class Caller final : public bootstrap::Source {
 public:
  Caller(int rank, TcpCard card, const RemoteSetup& setup) : rank_(rank), card_(std::move(card)), setup_(setup) {
    dial();
  }

  bool done() const { return done_; }
  int rank() const { return rank_; }
  TcpConnection take() {
    TcpConnection connection{rank_, {}, {}};
    connection.socket = link_->release(&connection.unread);
    return connection;
  }
  std::string problem() const { return problem_.empty() ? "it does not answer" : problem_; }

  void arm(bootstrap::PollSet& set) override {
    if (dialer_) dialer_->arm(set);
    if (link_) index_ = set.add(link_->fd(), link_->wanted());
  }

  void serve(const bootstrap::PollSet& set) override {
    if (dialer_) {
      dialer_->serve(set);
      if (dialer_->state() != Dialer::State::trying) answered();
    } else if (link_) {
      link_->pump(set.at(index_));
      if (const auto hello = link_->next(); hello && rankIn(*hello, setup_) == rank_) {
        done_ = true;
      } else if (hello || link_->closed()) {
        hangUp("it refused the connection");
      }
    } else if (Deadline::Clock::now() >= again_) {
      dial();
    }
  }

  int waitMsMax() const override {
    if (dialer_) return dialer_->waitMsMax();
    return link_ ? 1 << 30 : static_cast<int>(kRedial.count());
  }

 private:
  void dial() { dialer_ = std::make_unique<Dialer>(card_.addresses, setup_.keyOf(rank_), kHello, kPerAddress); }

  void answered() {
    const auto dialer = std::move(dialer_);
    if (dialer->state() == Dialer::State::failed && dialer->shortage() != 0) {
      throw Error(moeSystemError,
                  fmt::format("cannot connect to rank {} for puts: {}", rank_, errorText(dialer->shortage())));
    }
    if (dialer->state() == Dialer::State::failed) return hangUp(dialer->problem());
    link_ = dialer->take();
    sendHello(*link_, setup_);
  }

  void hangUp(const std::string& why) {
    problem_ = why;
    link_.reset();
    again_ = Deadline::Clock::now() + kRedial;
  }

  int rank_;
  TcpCard card_;
  const RemoteSetup& setup_;
  std::unique_ptr<Dialer> dialer_;
  std::unique_ptr<Link> link_;  // connected, waits for the answer
  std::size_t index_ = 0;
  Deadline::Clock::time_point again_{};
  std::string problem_;
  bool done_ = false;
};

// Everything that one rank does until it is connected.
class Introduction {
 public:
  Introduction(const RemoteSetup& setup, const std::vector<CardBytes>& cards, std::vector<Fd> listeners)
      : setup_(setup), lobby_(std::move(listeners), setup.keyOf(setup.rank), kHello, {}) {
    for (const int rank : setup.peers) {
      TcpCard card = TcpCard::decode(cards.at(static_cast<std::size_t>(rank)), rank);
      if (rank > setup.rank) callers_.push_back(std::make_unique<Caller>(rank, std::move(card), setup));
      if (rank < setup.rank) awaited_.push_back(rank);
    }
  }

  std::vector<TcpConnection> run(const Deadline& deadline) {
    while (!callers_.empty() || !awaited_.empty()) {
      if (deadline.expired()) complain();
      setup_.hearGroup();
      if (const auto why = lobby_.shortage(bootstrap::kShortageMax); why && !awaited_.empty()) throw Error(*why);
      round(deadline);
    }
    return std::move(connections_);
  }

 private:
  void round(const Deadline& deadline) {
    set_.clear();
    lobby_.arm(set_);
    int waitMs = std::min({deadline.leftMs(), lobby_.waitMsMax(), kHearMs});
    for (const auto& caller : callers_) {
      caller->arm(set_);
      waitMs = std::min(waitMs, caller->waitMsMax());
    }
    set_.wait(waitMs);
    lobby_.serve(set_);
    for (auto& guest : lobby_.takeGuests()) welcome(*guest);
    for (const auto& caller : callers_) {
      caller->serve(set_);
      if (caller->done()) connections_.push_back(caller->take());
    }
    std::erase_if(callers_, [](const auto& caller) { return caller->done(); });
  }

  // Admits a rank that knows our key. A rank that comes again has lost its first connection.
  void welcome(Link& link) {
    const auto hello = link.next();
    const int rank = hello ? rankIn(*hello, setup_) : -1;
    if (rank < 0 || rank > setup_.rank) return;
    sendHello(link, setup_);
    if (link.closed() || !link.drained()) return;
    std::erase(awaited_, rank);
    std::erase_if(connections_, [&](const TcpConnection& connection) { return connection.rank == rank; });
    TcpConnection& connection = connections_.emplace_back(TcpConnection{rank, {}, {}});
    connection.socket = link.release(&connection.unread);
  }

  [[noreturn]] void complain() const {
    const std::size_t missing = callers_.size() + awaited_.size();
    const std::string others = missing > 1 ? fmt::format("; {} more ranks are missing", missing - 1) : "";
    if (callers_.empty()) {
      throw Error(moeTimeout,
                  fmt::format("rank {} did not connect to rank {} for puts{}", awaited_.front(), setup_.rank, others));
    }
    throw Error(moeTimeout, fmt::format("rank {} cannot connect to rank {} for puts ({}){}", setup_.rank,
                                        callers_.front()->rank(), callers_.front()->problem(), others));
  }

  const RemoteSetup& setup_;
  bootstrap::Lobby lobby_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<int> awaited_;  // ranks that will dial us
  std::vector<TcpConnection> connections_;
  bootstrap::PollSet set_;
};

std::vector<bootstrap::Address> whereToListen(const RemoteSetup& setup) {
  if (setup.oneHost && setup.interfaceName.empty()) {
    return {bootstrap::Address::loopback(AF_INET), bootstrap::Address::loopback(AF_INET6)};
  }
  return bootstrap::localAddresses(setup.interfaceName);
}

}  // namespace

void giveUpAfter(int fd, std::chrono::milliseconds timeout) noexcept {
  bootstrap::keepAlive(fd, timeout);
  const auto limit = static_cast<unsigned>(std::min<std::int64_t>(timeout.count(), 1 << 30));
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
}

CardBytes TcpCard::encode() const {
  bootstrap::Writer out;
  out.u32(kCardMagic);
  out.u8(kCardVersion);
  bootstrap::writeAddresses(out, addresses);
  return out.take();
}

TcpCard TcpCard::decode(const CardBytes& bytes, int rank) {
  bootstrap::Reader in(bytes);
  TcpCard card;
  const bool known = in.u32() == kCardMagic && in.u8() == kCardVersion;
  if (known && bootstrap::readAddresses(in, card.addresses) && in.ok() && in.left() == 0) return card;
  throw Error(moeInvalidUsage, fmt::format("the card of rank {} is not that of a TCP transport of this version", rank));
}

TcpMeeting::TcpMeeting(const RemoteSetup& setup) : listener_(bootstrap::listenTcp(whereToListen(setup), 0)) {}

std::vector<TcpConnection> TcpMeeting::meet(const RemoteSetup& setup, const std::vector<CardBytes>& cards,
                                            const Deadline& deadline) {
  Introduction all(setup, cards, std::move(listener_.sockets));
  std::vector<TcpConnection> connections = all.run(deadline);
  for (const TcpConnection& connection : connections) giveUpAfter(connection.socket.get(), setup.timeout());
  return connections;
}

}  // namespace moe
