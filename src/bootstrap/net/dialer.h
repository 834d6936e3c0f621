// Connects to one listener that has several addresses. It tries them in order, each for a short time, without blocking
// its poll loop. It makes one pass over the addresses, and the owner may start another one.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/link.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

class Dialer : public Source {
 public:
  enum class State { trying, connected, failed };

  Dialer(std::vector<Address> addresses, const Key& key, FrameMask accepted, std::chrono::milliseconds perAddress);

  void arm(PollSet& set) override;
  void serve(const PollSet& set) override;
  int waitMsMax() const override;

  State state() const { return state_; }
  std::unique_ptr<Link> take() { return std::move(link_); }  // once Connected: the handshake is done
  const std::string& problem() const { return problem_; }    // the failure of each address
  int shortage() const { return shortage_; }   // the errno, if this process or the system lacks what a connection takes
  bool wrongKey() const { return wrongKey_; }  // the answer came from a process without the key
  bool otherVersion() const { return otherVersion_; }  // it came from another version of the library
  bool allRefused() const { return refused_ == addresses_.size(); }

 private:
  void tryNext();
  void note(const std::string& why, int error);
  void giveUp(const std::string& why, int error);

  std::vector<Address> addresses_;
  Key key_;
  FrameMask accepted_;
  std::chrono::milliseconds perAddress_;
  State state_ = State::trying;
  std::size_t current_ = 0;
  std::unique_ptr<Link> link_;
  Deadline until_ = Deadline::after(std::chrono::milliseconds(0));
  std::size_t index_ = 0;
  std::string problem_;
  int shortage_ = 0;
  bool wrongKey_ = false;
  bool otherVersion_ = false;
  std::size_t refused_ = 0;  // addresses where nobody listens
};

}  // namespace moe::bootstrap
