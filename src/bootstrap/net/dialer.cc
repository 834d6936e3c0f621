#include "bootstrap/net/dialer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {

Dialer::Dialer(std::vector<Address> addresses, const Key& key, FrameMask accepted, std::chrono::milliseconds perAddress)
    : addresses_(std::move(addresses)), key_(key), accepted_(accepted), perAddress_(perAddress) {
  tryNext();
}

// Tries addresses_[current_] and the following ones until one does not fail at once.
void Dialer::tryNext() {
  for (; current_ < addresses_.size(); ++current_) {
    Connecting connecting = startConnect(addresses_[current_]);
    if (connecting.fd) {
      link_ = std::make_unique<Link>(std::move(connecting.fd), Handshake::Side::client, key_, accepted_);
      until_ = Deadline::after(perAddress_);
      return;
    }
    if (isShortage(connecting.error)) shortage_ = connecting.error;
    note(errorText(connecting.error), connecting.error);
  }
  state_ = State::failed;
}

void Dialer::note(const std::string& why, int error) {
  if (error == ECONNREFUSED) ++refused_;
  problem_ += fmt::format("{}{}: {}", problem_.empty() ? "" : "; ", addresses_[current_].text(), why);
}

void Dialer::giveUp(const std::string& why, int error) {
  note(why, error);
  link_.reset();
  ++current_;
  tryNext();
}

void Dialer::arm(PollSet& set) {
  if (state_ == State::trying) index_ = set.add(link_->fd(), link_->wanted());
}

void Dialer::serve(const PollSet& set) {
  if (state_ != State::trying) return;
  link_->pump(set.at(index_));
  if (link_->open()) {
    state_ = State::connected;
  } else if (link_->closed()) {
    wrongKey_ = wrongKey_ || link_->wrongKey();
    otherVersion_ = otherVersion_ || link_->otherVersion();
    giveUp(link_->reason().empty() ? "it closed the connection" : link_->reason(), link_->error());
  } else if (until_.expired()) {
    giveUp("no answer", 0);
  }
}

int Dialer::waitMsMax() const {
  return state_ == State::trying ? until_.leftMs() : 0;
}

}  // namespace moe::bootstrap
