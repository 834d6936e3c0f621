#include "bootstrap/lobby.h"

#include <sys/socket.h>

#include <algorithm>

#include "bootstrap/socket.h"

namespace moe::bootstrap {
namespace {

constexpr std::size_t kNotArmed = SIZE_MAX;
constexpr int kAcceptsPerRound = 64;

}  // namespace

Lobby::Lobby(std::vector<Fd> listeners, const Key& key, FrameMask accepted, const Limits& limits)
    : listeners_(std::move(listeners)), key_(key), accepted_(accepted), limits_(limits) {}

void Lobby::arm(PollSet& set) {
  listenerArmed_ = !listeners_.empty() && pending_.size() < limits_.pendingMax && Clock::now() >= acceptAgain_;
  for (std::size_t i = 0; listenerArmed_ && i < listeners_.size(); ++i) {
    const std::size_t index = set.add(listeners_[i].get(), POLLIN);
    if (i == 0) listenerIndex_ = index;
  }
  for (Pending& pending : pending_) pending.index = set.add(pending.link->fd(), pending.link->wanted());
}

int Lobby::waitMsMax() const {
  if (pending_.empty() && (listenerArmed_ || listeners_.empty())) return 1 << 30;
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
  for (std::size_t i = 0; listenerArmed_ && i < listeners_.size(); ++i) {
    if (set.at(listenerIndex_ + i) != 0) acceptSome(listeners_[i]);
  }
}

void Lobby::expire() {
  const bool full = pending_.size() >= limits_.pendingMax || Clock::now() < acceptAgain_;
  const auto oldest = Clock::now() - (full ? limits_.pressed : limits_.patience);
  std::erase_if(pending_, [&](const Pending& pending) { return pending.since < oldest; });
}

void Lobby::acceptSome(const Fd& listener) {
  for (int i = 0; i < kAcceptsPerRound && pending_.size() < limits_.pendingMax; ++i) {
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
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
  listeners_.clear();
  pending_.clear();
  guests_.clear();
}

std::vector<std::unique_ptr<Link>> Lobby::takeGuests() {
  return std::exchange(guests_, {});
}

}  // namespace moe::bootstrap
