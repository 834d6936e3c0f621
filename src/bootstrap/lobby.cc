#include "bootstrap/lobby.h"

#include <sys/socket.h>

#include <algorithm>

#include "bootstrap/socket.h"

namespace moe::bootstrap {
namespace {

constexpr std::size_t kNotArmed = SIZE_MAX;
constexpr int kAcceptsPerRound = 64;

}  // namespace

Lobby::Lobby(Fd listener, const Key& key, FrameMask accepted, const Limits& limits)
    : listener_(std::move(listener)), key_(key), accepted_(accepted), limits_(limits) {}

void Lobby::arm(PollSet& set) {
  listenerArmed_ = listener_ && pending_.size() < limits_.pendingMax && Clock::now() >= acceptAgain_;
  if (listenerArmed_) listenerIndex_ = set.add(listener_.get(), POLLIN);
  for (Pending& pending : pending_) pending.index = set.add(pending.link->fd(), pending.link->wanted());
}

int Lobby::waitMsMax() const {
  if (pending_.empty() && (listenerArmed_ || !listener_)) return 1 << 30;
  return 50;  // often enough for the deadlines of strangers, which need not be exact
}

void Lobby::serve(const PollSet& set) {
  for (Pending& pending : pending_) {
    if (pending.index == kNotArmed) continue;
    pending.link->pump(set.at(pending.index));
    if (pending.link->frameReady()) guests_.push_back(std::move(pending.link));
  }
  std::erase_if(pending_, [](const Pending& pending) { return !pending.link || pending.link->closed(); });
  expire();
  if (listenerArmed_ && set.at(listenerIndex_) != 0) acceptSome();
}

void Lobby::expire() {
  const bool full = pending_.size() >= limits_.pendingMax || Clock::now() < acceptAgain_;
  const auto oldest = Clock::now() - (full ? limits_.pressed : limits_.patience);
  std::erase_if(pending_, [&](const Pending& pending) { return pending.since < oldest; });
}

void Lobby::acceptSome() {
  for (int i = 0; i < kAcceptsPerRound && pending_.size() < limits_.pendingMax; ++i) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
      if (exhausted) acceptAgain_ = Clock::now() + std::chrono::milliseconds(50);
      return;  // nothing left to accept, or a connection that has gone already
    }
    sendAtOnce(socket.get());
    pending_.push_back(
        {std::make_unique<Link>(std::move(socket), Handshake::Side::Server, key_, accepted_), Clock::now(), kNotArmed});
  }
}

void Lobby::shut() {
  listener_.reset();
  pending_.clear();
  guests_.clear();
}

std::vector<std::unique_ptr<Link>> Lobby::takeGuests() {
  return std::exchange(guests_, {});
}

}  // namespace moe::bootstrap
