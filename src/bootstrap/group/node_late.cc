// Finds out who is to blame for late waits (docs/decisions/0029-who-is-blamed.md).
#include <fmt/format.h>

#include <algorithm>

#include "bootstrap/group/node.h"

namespace moe::bootstrap {
namespace {

// Limit for an answer to Ask, which comes from a thread that does little else. The result then reaches all ranks before
// kVerdict.
constexpr std::chrono::milliseconds kSilence{700};

}  // namespace

void Node::askWhoIsLate(const LateWait& wait) {
  if (firstFailure_) return;  // this rank already knows the culprit
  verdict_ = Deadline::after(kVerdict);
  learnLate(wait, generation_, nullptr);
}

// A wait of a newer generation cannot be: in that one, ranks wait only in a collective that this rank has not joined.
void Node::learnLate(const LateWait& wait, Generation generation, const Peer* from) {
  if (generation != generation_ || firstFailure_ || !lateWaits_.add(wait)) return;
  flood(share(FrameType::late, wait.failure.rank, encodeLateWait(wait), generation_), from);
  for (const auto& peer : peers_) ask(*peer);
}

void Node::tellLateWaits(Peer& peer) {
  if (firstFailure_ || lateWaits_.byRank().empty()) return;
  for (const auto& [rank, wait] : lateWaits_.byRank())
    peer.link->send(FrameType::late, rank, encodeLateWait(wait), generation_);
  ask(peer);
}

void Node::ask(Peer& peer) {
  if (peer.answerEnd || died(peer.rank)) return;
  peer.link->send(FrameType::ask, group_.rank, {}, generation_);
  peer.answerEnd = Deadline::after(kSilence);
}

// A leaving peer owes no answer, because it may have ended its writing.
bool Node::owesAnswer(const Peer& peer) const {
  return peer.answerEnd && !peer.lives && !peer.leaving && !died(peer.rank);
}

int Node::judgeMs() const {
  int ms = 1 << 30;
  if (!judges()) return ms;
  if (verdict_) ms = verdict_->leftMs();
  for (const auto& peer : peers_) {
    if (owesAnswer(*peer)) ms = std::min(ms, peer->answerEnd->leftMs());
  }
  return ms;
}

void Node::judge() {
  if (!judges()) return;
  for (const auto& peer : peers_) {
    if (owesAnswer(*peer) && peer->answerEnd->expired()) return conclude(silence(peer->rank));
  }
  if (verdict_ && verdict_->expired()) conclude(lateWaits_.lastFrom(group_.rank).failure);
}

Failure Node::silence(int rank) const {
  if (const LateWait* wait = lateWaits_.waitFor(rank)) return wait->failure;
  const Failure& asked = lateWaits_.byRank().begin()->second.failure;
  return {group_.rank, asked.result, fmt::format("rank {} does not answer, and {}", rank, asked.sentence)};
}

void Node::conclude(Failure why) {
  why.rank = group_.rank;
  why.generation = generation_;
  newFailures_.push_back(why);
  learnFailure(why, nullptr);
}

}  // namespace moe::bootstrap
