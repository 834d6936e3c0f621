// The collectives of a Node. Blobs go up the tree one by one, and the whole set comes down.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/group/node.h"

namespace moe::bootstrap {
namespace {

constexpr std::chrono::milliseconds kWaitingInterval{500};
constexpr std::size_t kWaitingRanksMax = 64;

}  // namespace

std::uint16_t Gather::begin() {
  sequence_ = sequenceOf(generationOf(sequence_), sequence_ + 1u);
  running_ = true;
  waiting_.clear();
  return sequence_;
}

void Gather::restart(Generation generation) {
  sequence_ = sequenceOf(generation, 0);
  running_ = false;
  waiting_.clear();
  std::erase_if(rounds_, [&](const auto& round) { return round.first != sequenceOf(generation, 1); });
}

bool Gather::plausible(std::uint16_t sequence) const {
  if (isNewer(generationOf(sequence), generationOf(sequence_)))
    return sequence == sequenceOf(generationOf(sequence), 1);
  return (sequence == sequence_ && running_) || sequence == sequenceOf(generationOf(sequence_), sequence_ + 1u);
}

bool Gather::add(std::uint16_t sequence, int rank, std::span<const std::uint8_t> blob) {
  if (!plausible(sequence)) return false;
  // Ranks that begin one more generation send nothing more for the one before.
  std::erase_if(rounds_, [&](const auto& round) {
    return isNewer(generationOf(round.first), generationOf(sequence_)) &&
           isNewer(generationOf(sequence), generationOf(round.first));
  });
  Round& round = rounds_[sequence];
  round.blobs.resize(nranks_);
  round.have.resize(nranks_);
  const auto index = static_cast<std::size_t>(rank);
  if (index >= nranks_ || round.have[index]) return false;
  round.have[index] = true;
  round.blobs[index].assign(blob.begin(), blob.end());
  ++round.count;
  return true;
}

std::vector<std::vector<std::uint8_t>> Gather::finish() {
  auto blobs = std::move(rounds_[sequence_].blobs);
  rounds_.erase(sequence_);
  running_ = false;
  return blobs;
}

std::vector<int> Gather::missing() {
  const Round& round = rounds_[sequence_];
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < nranks_; ++rank) {
    if (round.have.empty() || !round.have[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void Gather::noteWaiting(std::vector<int> ranks, std::size_t total) {
  waiting_ = std::move(ranks);
  waitingTotal_ = total;
  waitingAt_ = Deadline::Clock::now();
}

void Node::throwIfBroken(const char* what) const {
  if (firstFailure_) throw Error(firstFailure_->result, firstFailure_->sentence);
  if (firstLeft_)
    throw Error(moeRemoteError, fmt::format("rank {} left the group before {} was done", *firstLeft_, what));
}

std::vector<std::vector<std::uint8_t>> Node::allGather(std::span<const std::uint8_t> mine, const char* what,
                                                       Deadline deadline) {
  throwIfBroken(what);
  const std::uint16_t sequence = gather_.begin();
  if (isRoot()) {
    gather_.add(sequence, group_.rank, mine);
    if (gather_.complete()) sendResults();
  } else {
    sendUp(share(FrameType::gather, group_.rank, mine, sequence));
  }
  Deadline notice = Deadline::after(kWaitingInterval);
  while (!gather_.complete()) {
    if (deadline.expired()) giveUp(what);
    if (notice.expired()) {
      sendWaiting();
      notice = Deadline::after(kWaitingInterval);
    }
    flush();
    round(std::min(deadline.leftMs(), notice.leftMs()));
    if (gather_.complete()) break;
    throwIfBroken(what);
    throwIfChildrenWait();
  }
  while (!allDrained() && !deadline.expired()) round(deadline.leftMs());
  return gather_.finish();
}

void Node::sendDown(const SharedBytes& bytes) {
  for (const auto& peer : peers_) {
    if (peer->rank > group_.rank) peer->link->send(bytes);
  }
}

// For the root only. All blobs are in one buffer, which the queues of all children share.
void Node::sendResults() {
  std::vector<std::uint8_t> all;
  const auto& blobs = gather_.blobs();
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    const auto bytes = encodeFrame(FrameType::result, static_cast<std::uint32_t>(rank), blobs[rank], gather_.current());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  sendDown(std::make_shared<const std::vector<std::uint8_t>>(std::move(all)));
}

void Node::handleGather(Peer& peer, const Frame& frame) {
  if (gather_.stale(frame.sequence)) return;
  if (peer.rank < group_.rank || !gather_.plausible(frame.sequence)) return violate(peer, "an unexpected blob");
  if (!isRoot()) {
    return sendUp(share(FrameType::gather, static_cast<int>(frame.rank), frame.payload, frame.sequence));
  }
  if (!gather_.add(frame.sequence, static_cast<int>(frame.rank), frame.payload)) {
    return violate(peer, "a blob twice");
  }
  if (gather_.running() && frame.sequence == gather_.current() && gather_.complete()) sendResults();
}

void Node::handleResult(Peer& peer, const Frame& frame) {
  if (gather_.stale(frame.sequence)) return;
  const bool expected = gather_.running() && frame.sequence == gather_.current() && peer.rank < group_.rank;
  if (!expected || !gather_.add(frame.sequence, static_cast<int>(frame.rank), frame.payload)) {
    return violate(peer, "an unexpected result");
  }
  sendDown(share(FrameType::result, static_cast<int>(frame.rank), frame.payload, frame.sequence));
}

// ---- Missing ranks ----

bool Node::hasChild(int rank) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& peer) { return peer->rank == rank; });
}

// Throws if children wait in vain. Otherwise they would be named as missing: only this rank knows of its shortage.
void Node::throwIfChildrenWait() const {
  const auto why = lobby_.shortage(shortagePatience(group_.timeout));
  if (!why) return;
  for (int rank = group_.rank * kFanOut + 1; rank <= (group_.rank + 1) * kFanOut && rank < group_.nranks; ++rank) {
    if (!hasChild(rank)) throw Error(*why);
  }
}

void Node::warnOfShortage() {
  if (warnedOfShortage_ || group_.log == nullptr) return;
  const auto why = lobby_.shortage(kShortageMax);
  if (!why) return;
  warnedOfShortage_ = true;
  group_.log->write(moeLogWarn, "net", "other ranks look for a new neighbour, but this one {}", why->what());
}

// Tells the ranks below which ranks this operation waits for. The root knows it from the blobs. The others know it from
// their parent, or suspect the parent if that is silent.
void Node::sendWaiting() {
  std::vector<int> ranks;
  std::size_t total = 1;
  if (isRoot()) {
    ranks = gather_.missing();
    total = ranks.size();
  } else if (gather_.waitingFresh()) {
    return;  // it was passed on when it came
  } else {
    ranks = {parent() != nullptr ? parent()->rank : parentOf(group_.rank)};
  }
  Writer payload;
  payload.u32(static_cast<std::uint32_t>(total));
  for (std::size_t i = 0; i < std::min(ranks.size(), kWaitingRanksMax); ++i) {
    payload.u32(static_cast<std::uint32_t>(ranks[i]));
  }
  sendDown(share(FrameType::waiting, 0, payload.view(), gather_.current()));
}

void Node::handleWaiting(const Frame& frame) {
  if (!gather_.running() || frame.sequence != gather_.current()) return;  // an answer that came too late
  Reader in(frame.payload);
  const std::size_t total = in.u32();
  std::vector<int> ranks;
  while (in.left() >= 4) ranks.push_back(static_cast<int>(in.u32()));
  gather_.noteWaiting(std::move(ranks), total);
  sendDown(share(FrameType::waiting, 0, frame.payload, frame.sequence));
}

void Node::giveUp(const char* what) {
  std::vector<int> suspects;
  std::size_t total = 0;
  if (isRoot()) {
    suspects = gather_.missing();
  } else if (gather_.waitingFresh()) {
    suspects = gather_.waiting();
    total = gather_.waitingTotal();
  } else {
    suspects = {parentOf(group_.rank)};
  }
  const std::string sentence =
      fmt::format("{} did not complete {} within {} ms", describeRanks(suspects, total), what, group_.timeout.count());
  announce({group_.rank, moeTimeout, sentence});
  flush();  // sends to the others first, because a log may take time
  if (group_.log != nullptr) group_.log->write(moeLogWarn, "net", "{}", sentence);
  throw Error(moeTimeout, sentence);
}

}  // namespace moe::bootstrap
