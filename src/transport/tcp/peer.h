// The ranks that a TCP transport is connected to, as its threads share them. One thread sends on each connection, and
// one receives.
#pragma once

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/remote.h"

namespace moe {

struct TcpPeer {
  explicit TcpPeer(int rankOfPeer) : rank(rankOfPeer) {}

  const int rank;
  Fd socket;                               // stays open until no thread uses it
  std::atomic<bool> gone = true;           // not connected yet, lost, or left: nothing is sent there
  std::atomic<bool> leaving = false;       // receiver: the peer has sent Drain, so a closed connection is no death
  std::atomic<bool> answerWanted = false;  // receiver to sender: send Drained
  std::atomic<bool> drainWanted = false;   // finish to sender: send Drain behind all puts
  std::atomic<bool> drained = false;       // receiver to finish: our Drain has been answered
};

class TcpGroup {
 public:
  explicit TcpGroup(RemoteSetup setup) : setup_(std::move(setup)), byRank_(static_cast<std::size_t>(setup_.nranks)) {
    for (const int rank : setup_.peers) {
      byRank_.at(static_cast<std::size_t>(rank)) = peers_.emplace_back(std::make_unique<TcpPeer>(rank)).get();
    }
  }

  const RemoteSetup& setup() const { return setup_; }
  const std::vector<std::unique_ptr<TcpPeer>>& peers() const { return peers_; }
  // NULL: no peer.
  TcpPeer* peer(int rank) const {
    return rank >= 0 && rank < setup_.nranks ? byRank_[static_cast<std::size_t>(rank)] : nullptr;
  }

  void setFinished() { finished_ = true; }

  // Reports a failure. The sentence starts with this rank, which has noticed it, because all ranks read the sentence.
  void fail(moeResult_t result, const std::string& sentence) {
    try {
      setup_.fail(result, fmt::format("rank {}: {}", setup_.rank, sentence));
    } catch (const std::bad_alloc&) {
      setup_.fail(result, kNoMemory);
    }
  }

  // Gives up a useless connection. This is a failure unless the peer has said that it leaves, or nobody needs the
  // connection. `sentence` names the peer.
  void lose(TcpPeer& peer, moeResult_t result, const std::string& sentence) {
    if (peer.gone.exchange(true)) return;
    ::shutdown(peer.socket.get(), SHUT_RDWR);  // wakes the other thread
    if (!finished_ && !peer.leaving) fail(result, sentence);
  }

 private:
  RemoteSetup setup_;
  std::vector<std::unique_ptr<TcpPeer>> peers_;
  std::vector<TcpPeer*> byRank_;
  std::atomic<bool> finished_ = false;
};

}  // namespace moe
