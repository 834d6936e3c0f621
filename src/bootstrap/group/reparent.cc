#include "bootstrap/group/reparent.h"

#include <algorithm>

#include "bootstrap/group/node.h"

namespace moe::bootstrap {
namespace {

constexpr std::chrono::milliseconds kPerAddress{1000};
constexpr std::chrono::milliseconds kPauseMax{5000};
constexpr std::chrono::milliseconds kProbeAgain{500};

}  // namespace

bool Reparent::needed() const {
  if (node_.parentState() == Node::ParentState::attached) return false;
  for (int rank = 0; rank < node_.group().rank; ++rank) {
    if (!gone(rank)) return true;
  }
  return false;
}

bool Reparent::resting() const {
  return dialer_ == nullptr && node_.parentState() == Node::ParentState::none && !next_.expired();
}

int Reparent::waitMsMax() const {
  if (dialer_ != nullptr || node_.parentState() != Node::ParentState::none || !needed()) return 1 << 30;
  return next_.leftMs();
}

void Reparent::hurry() {
  next_ = Deadline::after(std::chrono::milliseconds(0));
  pause_ = kPauseMin;
}

void Reparent::listCandidates() {
  candidates_.clear();
  const int self = node_.group().rank;
  for (int rank = self; rank > 0;) {
    rank = parentOf(rank);
    if (!gone(rank)) candidates_.push_back(rank);
  }
  const auto ancestorCount = static_cast<std::ptrdiff_t>(candidates_.size());
  for (int rank = 0; rank < self; ++rank) {
    const auto ancestorsEnd = candidates_.begin() + ancestorCount;
    if (!gone(rank) && std::find(candidates_.begin(), ancestorsEnd, rank) == ancestorsEnd) candidates_.push_back(rank);
  }
}

void Reparent::dial(int rank) {
  dialing_ = rank;
  const Group& group = node_.group();
  dialer_ = std::make_unique<Dialer>(group.addresses[static_cast<std::size_t>(rank)], group.key, Node::kPeerFrames,
                                     kPerAddress);
  node_.addSource(*dialer_);
}

void Reparent::stopDialing() {
  if (dialer_ != nullptr) node_.removeSource(*dialer_);
  dialer_.reset();
}

void Reparent::step() {
  if (dialer_ != nullptr) {
    if (dialer_->state() == Dialer::State::trying) return;
    auto link = dialer_->state() == Dialer::State::connected ? dialer_->take() : nullptr;
    const bool refused = dialer_->allRefused();
    stopDialing();
    if (link != nullptr) node_.attachTo(dialing_, std::move(link));
    if (refused) node_.nobodyListens(dialing_);
  }
  const auto state = node_.parentState();
  if (state == Node::ParentState::attached) {
    candidates_.clear();
    pause_ = kPauseMin;
  }
  if (state != Node::ParentState::none || !next_.expired() || !needed()) return;
  if (candidates_.empty()) listCandidates();
  while (!candidates_.empty() && gone(candidates_.front())) candidates_.pop_front();
  if (candidates_.empty()) return;
  dial(candidates_.front());
  candidates_.pop_front();
  if (candidates_.empty()) {
    next_ = Deadline::after(pause_);
    pause_ = std::min(pause_ * 2, kPauseMax);
  }
}

void Probe::stopDialing() {
  if (dialer_ != nullptr) node_.removeSource(*dialer_);
  dialer_.reset();
}

void Probe::step(const std::vector<int>& missing) {
  if (dialer_ != nullptr) {
    if (dialer_->state() == Dialer::State::trying) return;
    const bool refused = dialer_->allRefused();
    stopDialing();
    if (refused) node_.nobodyListens(rank_);
  }
  if (!next_.expired()) return;
  const auto next = std::upper_bound(missing.begin(), missing.end(), rank_);
  if (next == missing.end()) {
    rank_ = -1;
    next_ = Deadline::after(kProbeAgain);
    return;
  }
  rank_ = *next;
  const Group& group = node_.group();
  dialer_ = std::make_unique<Dialer>(group.addresses[static_cast<std::size_t>(rank_)], group.key, Node::kPeerFrames,
                                     kPerAddress);
  node_.addSource(*dialer_);
}

}  // namespace moe::bootstrap
