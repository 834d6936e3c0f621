// Finds a new parent for a rank whose parent has gone. It tries the ranks below this one, one after the other and
// former ancestors first, until one accepts. A rank whose lower ranks have all gone is the root of what is left. It
// runs inside the node's rounds and never blocks.
#pragma once

#include <deque>
#include <memory>
#include <optional>

#include "bootstrap/group/node.h"
#include "bootstrap/net/dialer.h"

namespace moe::bootstrap {

// One attempt to connect to a rank, which takes part in the node's rounds.
class Attempt {
 public:
  Attempt(Node& node, int rank);

  bool ended() const { return dialer_.state() != Dialer::State::trying; }
  int rank() const { return rank_; }
  // When it has ended. NULL: it has failed, or the rank has a new process since.
  std::unique_ptr<Link> link() {
    return current() && dialer_.state() == Dialer::State::connected ? dialer_.take() : nullptr;
  }
  bool nobodyListens() const { return current() && dialer_.allRefused(); }

 private:
  bool current() const { return node_.incarnation(rank_) == incarnation_; }

  Node& node_;
  int rank_;
  Incarnation incarnation_;
  Dialer dialer_;
  AddedSource added_;
};

class Reparent {
 public:
  explicit Reparent(Node& node) : node_(node) {}

  void step();            // once per round
  bool needed() const;    // there is no parent, but a rank that could be one
  bool resting() const;   // all candidates were tried, and the next pass has not started
  int waitMsMax() const;  // until the next call of step() is due
  void hurry();           // the next pass begins at once

 private:
  void listCandidates();
  bool gone(int rank) const { return node_.left(rank) || node_.died(rank); }

  Node& node_;
  std::deque<int> candidates_;
  std::optional<Attempt> attempt_;
  Deadline next_ = Deadline::after(std::chrono::milliseconds(0));  // no attempt before this
  static constexpr std::chrono::milliseconds kPauseMin{100};
  std::chrono::milliseconds pause_ = kPauseMin;  // before the next pass, if this one fails
};

// Finds ranks that died unnoticed, because all their neighbours died with them. It connects to ranks that a collective
// waits for, one after the other. A rank lives if somebody listens at its addresses. The root's collectives run it.
class Probe {
 public:
  explicit Probe(Node& node) : node_(node) {}

  void step(const std::vector<int>& missing);  // once per round; ascending ranks
  int waitMsMax() const { return attempt_ ? 1 << 30 : next_.leftMs(); }

 private:
  Node& node_;
  int rank_ = -1;  // the latest that was probed
  std::optional<Attempt> attempt_;
  Deadline next_ = Deadline::after(std::chrono::milliseconds(50));
};

}  // namespace moe::bootstrap
