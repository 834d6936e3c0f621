// Finds a new parent for a rank whose parent has gone. It tries the ranks below this one, former ancestors first, one
// after the other, until one accepts. A rank whose lower ranks have all gone is the root of what is left. It runs
// inside the monitor's rounds and never blocks.
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
  bool needed() const;    // there is no parent, and a rank that could be one
  bool resting() const;   // all candidates were tried, the next pass has not begun
  int waitMsMax() const;  // until step() has to be called again

 private:
  void listCandidates();
  void dial(int rank);
  void stopDialing();
  bool gone(int rank) const { return node_.left(rank) || node_.failed(rank); }

  Node& node_;
  std::deque<int> candidates_;
  int dialing_ = -1;  // the rank that dialer_ tries
  std::unique_ptr<Dialer> dialer_;
  Deadline next_ = Deadline::after(std::chrono::milliseconds(0));  // no attempt before
  std::chrono::milliseconds pause_{100};                           // after the next pass without success
};

}  // namespace moe::bootstrap
