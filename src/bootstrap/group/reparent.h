// Finds a new parent for a rank whose parent has gone. It tries the ranks below this one, one after the other and
// former ancestors first, until one accepts. A rank whose lower ranks have all gone is the root of what is left. It
// runs inside the node's rounds and never blocks.
#pragma once

#include <deque>
#include <memory>

#include "bootstrap/group/node.h"
#include "bootstrap/net/dialer.h"

namespace moe::bootstrap {

class Reparent {
 public:
  explicit Reparent(Node& node) : node_(node) {}
  ~Reparent() { stopDialing(); }
  Reparent(const Reparent&) = delete;
  Reparent& operator=(const Reparent&) = delete;

  void step();            // once per round
  bool needed() const;    // there is no parent, but a rank that could be one
  bool resting() const;   // all candidates were tried, and the next pass has not started
  int waitMsMax() const;  // until the next call of step() is due
  void hurry();           // the next pass begins at once

 private:
  void listCandidates();
  void dial(int rank);
  void stopDialing();
  bool gone(int rank) const { return node_.left(rank) || node_.died(rank); }

  Node& node_;
  std::deque<int> candidates_;
  int dialing_ = -1;  // the rank that dialer_ tries to reach
  std::unique_ptr<Dialer> dialer_;
  Deadline next_ = Deadline::after(std::chrono::milliseconds(0));  // no attempt before this
  static constexpr std::chrono::milliseconds kPauseMin{100};
  std::chrono::milliseconds pause_ = kPauseMin;  // before the next pass, if this one fails
};

// Finds ranks that died unnoticed, because all their neighbours died with them. It connects to ranks that a collective
// waits for, one after the other. A rank lives if somebody listens at its addresses. The last rank never listens, so
// its death is not found. The root's collectives run it.
class Probe {
 public:
  explicit Probe(Node& node) : node_(node) {}
  ~Probe() { stopDialing(); }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  void step(const std::vector<int>& missing);  // once per round; ascending ranks
  int waitMsMax() const { return dialer_ != nullptr ? 1 << 30 : next_.leftMs(); }

 private:
  void stopDialing();

  Node& node_;
  int rank_ = -1;  // the latest that was probed
  std::unique_ptr<Dialer> dialer_;
  Deadline next_ = Deadline::after(std::chrono::milliseconds(50));
};

}  // namespace moe::bootstrap
