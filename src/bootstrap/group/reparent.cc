#include "bootstrap/group/reparent.h"

#include <algorithm>

#include "bootstrap/group/node.h"

namespace moe::bootstrap {
namespace {

constexpr std::chrono::milliseconds kPerAddress{1000};
constexpr std::chrono::milliseconds kPauseMax{5000};
constexpr std::chrono::milliseconds kProbeAgain{500};

}  // namespace

Attempt::Attempt(Node& node, int rank)
    : node_(node),
      rank_(rank),
      incarnation_(node.incarnation(rank)),
      dialer_(node.group().addresses[static_cast<std::size_t>(rank)], node.group().key, Node::kPeerFrames, kPerAddress),
      added_(node, dialer_) {}

bool Reparent::needed() const {
  if (node_.parentState() == Node::ParentState::attached) return false;
  for (int rank = 0; rank < node_.group().rank; ++rank) {
    if (!gone(rank)) return true;
  }
  return false;
}

bool Reparent::resting() const {
  return !attempt_ && node_.parentState() == Node::ParentState::none && !next_.expired();
}

int Reparent::waitMsMax() const {
  if (attempt_ || node_.parentState() != Node::ParentState::none || !needed()) return 1 << 30;
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

void Reparent::step() {
  if (attempt_) {
    if (!attempt_->ended()) return;
    const int rank = attempt_->rank();
    auto link = attempt_->link();
    const bool refused = attempt_->nobodyListens();
    attempt_.reset();
    if (link != nullptr) node_.attachTo(rank, std::move(link));
    if (refused) node_.nobodyListens(rank);
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
  attempt_.emplace(node_, candidates_.front());
  candidates_.pop_front();
  if (candidates_.empty()) {
    next_ = Deadline::after(pause_);
    pause_ = std::min(pause_ * 2, kPauseMax);
  }
}

void Probe::step(const std::vector<int>& missing) {
  if (attempt_) {
    if (!attempt_->ended()) return;
    const bool refused = attempt_->nobodyListens();
    attempt_.reset();
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
  attempt_.emplace(node_, rank_);
}

}  // namespace moe::bootstrap
