#include "bootstrap/net/lobby.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/error.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {
namespace {

constexpr std::size_t kNotArmed = SIZE_MAX;
constexpr int kAcceptsPerRound = 64;
constexpr std::chrono::milliseconds kCalm{1000};  // without a failed accept: a shortage has passed
constexpr std::chrono::milliseconds kSilent{10};  // a genuine guest sends its first frame at once

}  // namespace

Lobby::Lobby(std::vector<Fd> listeners, const Key& key, FrameMask accepted, const Limits& limits, Admits admits)
    : listeners_(std::move(listeners)), key_(key), accepted_(accepted), limits_(limits), admits_(std::move(admits)) {}

void Lobby::arm(PollSet& set) {
  listenerArmed_ = !listeners_.empty() && (!full() || mayGo() != pending_.end()) && Clock::now() >= acceptAgain_;
  for (std::size_t i = 0; listenerArmed_ && i < listeners_.size(); ++i) {
    const std::size_t index = set.add(listeners_[i].get(), POLLIN);
    if (i == 0) listenerIndex_ = index;
  }
  for (Pending& pending : pending_) pending.index = set.add(pending.link->fd(), pending.link->wanted());
}

int Lobby::waitMsMax() const {
  if (listeners_.empty() || (pending_.empty() && listenerArmed_)) return 1 << 30;
  if (!listenerArmed_) return static_cast<int>(kSilent.count());  // until a place may become free
  return 50;  // often enough for the deadlines of strangers, which need not be exact
}

void Lobby::serve(const PollSet& set) {
  for (Pending& pending : pending_) {
    if (pending.index == kNotArmed) continue;
    pending.link->pump(set.at(pending.index));
    if (pending.link->otherVersion()) otherVersion_ = pending.link->reason();
    if (pending.link->frameReady()) guests_.push_back(std::move(pending.link));
  }
  std::erase_if(pending_, [](const Pending& pending) { return !pending.link || pending.link->closed(); });
  expire();
  for (std::size_t i = 0; listenerArmed_ && i < listeners_.size(); ++i) {
    if (set.at(listenerIndex_ + i) != 0) acceptSome(listeners_[i]);
  }
}

void Lobby::expire() {
  const auto oldest = Clock::now() - limits_.patience;
  std::erase_if(pending_, [&](const Pending& pending) { return pending.since < oldest; });
}

// The connection that must give up its place: the oldest silent one, otherwise the oldest. None if all are new or know
// the key.
std::vector<Lobby::Pending>::iterator Lobby::mayGo() {
  const auto now = Clock::now();
  const auto silent = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return !pending.link->spoken() && pending.since < now - kSilent;
  });
  if (silent != pending_.end()) return silent;
  return std::find_if(pending_.begin(), pending_.end(), [&](const Pending& pending) {
    return !pending.link->open() && pending.since < now - limits_.pressed;
  });
}

void Lobby::acceptSome(const Fd& listener) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    const auto goes = full() ? mayGo() : pending_.end();
    if (full() && goes == pending_.end()) return;
    Fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (isShortage(errno)) makeRoom(errno);
      return;  // nothing left to accept, or a connection that is already gone
    }
    if (admits_ && !admits_(socket.get())) continue;
    if (goes != pending_.end()) pending_.erase(goes);
    sendAtOnce(socket.get());
    pending_.push_back(
        {std::make_unique<Link>(std::move(socket), Handshake::Side::server, key_, accepted_), Clock::now(), kNotArmed});
  }
}

// Makes room when the process is out of descriptors.
void Lobby::makeRoom(int error) {
  if (const auto goes = mayGo(); goes != pending_.end()) {
    pending_.erase(goes);
    return;
  }
  const auto now = Clock::now();
  acceptAgain_ = now + std::chrono::milliseconds(50);
  if (!pending_.empty()) return;
  if (now - shortLast_ > kCalm) shortSince_ = now;
  shortLast_ = now;
  shortage_ = error;
}

std::optional<Error> Lobby::shortage(std::chrono::milliseconds patience) const {
  const bool lasts = shortage_ != 0 && Clock::now() - shortLast_ < kCalm;
  if (!lasts || shortLast_ - shortSince_ < patience) return std::nullopt;
  return Error(moeSystemError, "cannot accept connections: " + errorText(shortage_));
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
