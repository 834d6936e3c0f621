// Listening sockets, and the connections on them that have not yet proved themselves. Strangers cost a bounded number
// of descriptors for a bounded time, whatever they do. A guest that has passed the handshake and sent a first frame
// goes to the owner. When all places are taken, a newcomer replaces the oldest stranger, silent ones first. So
// strangers keep nobody out, however many they are. The rendezvous, every rank's listener and the descriptor servers
// use it.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "bootstrap/net/link.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

// The time that an owner who needs all its guests waits for a shortage to pass (Lobby::shortage). Strangers have lost
// their places before that.
constexpr std::chrono::milliseconds shortagePatience(std::chrono::milliseconds timeout) {
  return std::clamp(timeout / 4, std::chrono::milliseconds(700), std::chrono::milliseconds(2000));
}
inline constexpr std::chrono::milliseconds kShortageMax = shortagePatience(std::chrono::hours(1));

class Lobby : public Source {
 public:
  struct Limits {
    std::size_t pendingMax = 128;
    std::chrono::milliseconds patience{5000};  // time for the handshake and the first frame
    std::chrono::milliseconds pressed{100};    // least time for guests that have sent something, if all places are
                                               // taken
  };
  using Admits = std::function<bool(int socket)>;  // true: the connection is looked at

  // `accepted`: the frames that a guest may send. `admits` may be empty.
  Lobby(std::vector<Fd> listeners, const Key& key, FrameMask accepted, const Limits& limits, Admits admits = {});

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override;

  // An error if connections have waited for at least `patience` because this process or the system lacks descriptors or
  // memory. None while strangers hold places here. Meanwhile the lobby goes on trying.
  std::optional<Error> shortage(std::chrono::milliseconds patience) const;

  // The protocol version of the latest connection that spoke another version; empty if there was none. Strangers can
  // cause it.
  const std::string& otherVersion() const { return otherVersion_; }

  void shut();  // closes the listeners and all waiting connections; the lobby stays a source without events

  // Connections with a first frame waiting in next(), oldest first.
  std::vector<std::unique_ptr<Link>> takeGuests();

 private:
  using Clock = Deadline::Clock;
  struct Pending {
    std::unique_ptr<Link> link;
    Clock::time_point since;
    std::size_t index;  // in the poll set; kNotArmed if it came later
  };
  bool full() const { return pending_.size() >= limits_.pendingMax; }
  std::vector<Pending>::iterator mayGo();
  void acceptSome(const Fd& listener);
  void makeRoom(int error);
  void expire();

  std::vector<Fd> listeners_;
  Key key_;
  FrameMask accepted_;
  Limits limits_;
  Admits admits_;
  std::vector<Pending> pending_;  // oldest first
  std::vector<std::unique_ptr<Link>> guests_;
  std::string otherVersion_;
  std::size_t listenerIndex_ = 0;  // index of the first one; the others follow
  bool listenerArmed_ = false;
  Clock::time_point acceptAgain_{};  // not before this: the process was out of descriptors
  int shortage_ = 0;                 // the errno of the latest such accept
  Clock::time_point shortSince_{}, shortLast_{};
};

}  // namespace moe::bootstrap
