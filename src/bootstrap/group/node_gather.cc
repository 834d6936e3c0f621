// The collectives of a Node, and how they begin again after failures. Blobs go up the tree one by one, and the whole
// set comes down.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/group/node.h"
#include "bootstrap/group/reparent.h"

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

void Gather::restart(Generation generation, const std::vector<bool>& lost) {
  sequence_ = sequenceOf(generation, 0);
  running_ = false;
  waiting_.clear();
  lost_ = lost;
  lostCount_ = static_cast<std::size_t>(std::count(lost_.begin(), lost_.end(), true));
  std::erase_if(rounds_, [&](const auto& round) { return !early(round.first) && !plausible(round.first); });
  for (auto& [sequence, round] : rounds_) {
    for (std::size_t rank = 0; rank < nranks_; ++rank) {
      if (!lost_[rank] || !round.have[rank]) continue;
      round.have[rank] = false;
      round.blobs[rank].clear();
      --round.count;
    }
  }
}

Gather::Round& Gather::roundOf(std::uint16_t sequence) {
  Round& round = rounds_[sequence];
  round.blobs.resize(nranks_);
  round.have.resize(nranks_);
  return round;
}

void Gather::appendFrames(std::uint16_t sequence, const Round& round, std::vector<SharedBytes>& frames) {
  for (std::size_t rank = 0; rank < round.blobs.size(); ++rank) {
    if (round.have[rank])
      frames.push_back(share(FrameType::gather, static_cast<int>(rank), round.blobs[rank], sequence));
  }
}

std::vector<SharedBytes> Gather::earlyFrames() const {
  std::vector<SharedBytes> frames;
  for (const auto& [sequence, round] : rounds_) {
    if (early(sequence)) appendFrames(sequence, round, frames);
  }
  return frames;
}

std::vector<SharedBytes> Gather::takeFirstFrames() {
  std::vector<SharedBytes> frames;
  const auto first = rounds_.find(sequenceOf(generationOf(sequence_), 1));
  if (first == rounds_.end()) return frames;
  appendFrames(first->first, first->second, frames);
  rounds_.erase(first);
  return frames;
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
  Round& round = roundOf(sequence);
  const auto index = static_cast<std::size_t>(rank);
  // A newer generation may have a newcomer.
  if (index >= nranks_ || (lost_[index] && !early(sequence)) || round.have[index]) return false;
  round.have[index] = true;
  round.blobs[index].assign(blob.begin(), blob.end());
  ++round.count;
  return true;
}

std::vector<std::vector<std::uint8_t>> Gather::finish() {
  auto blobs = std::move(roundOf(sequence_).blobs);
  rounds_.erase(sequence_);
  running_ = false;
  return blobs;
}

std::vector<int> Gather::missing() {
  const Round& round = roundOf(sequence_);
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < nranks_; ++rank) {
    if (!lost_[rank] && !round.have[rank]) ranks.push_back(static_cast<int>(rank));
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
  const auto end = [](bool* collecting) { *collecting = false; };
  const std::unique_ptr<bool, decltype(end)> collecting(&(collecting_ = true), end);
  std::optional<Probe> probe;
  if (isRoot() && anyLost_) probe.emplace(*this);
  while (!gather_.complete()) {
    if (deadline.expired()) giveUp(what);
    if (notice.expired()) {
      sendWaiting();
      notice = Deadline::after(kWaitingInterval);
    }
    if (probe) probe->step(gather_.missing());
    throwIfBroken(what);
    flush();
    round(std::min({deadline.leftMs(), notice.leftMs(), probe ? probe->waitMsMax() : 1 << 30}));
    if (gather_.complete()) break;
    throwIfBroken(what);
    throwIfChildrenWait();
  }
  while (!allDrained() && !deadline.expired()) round(deadline.leftMs());
  return gather_.finish();
}

void Node::sendDown(const SharedBytes& bytes) {
  for (const auto& peer : peers_) {
    if (peer->rank > group_.rank && !gone(peer->rank)) peer->link->send(bytes);
  }
}

// For the root only. All blobs are in one buffer, which the queues of all children share.
void Node::sendResults() {
  std::vector<std::uint8_t> all;
  const auto& blobs = gather_.blobs();
  for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
    if (gather_.lost(static_cast<int>(rank))) continue;
    const auto bytes = encodeFrame(FrameType::result, static_cast<std::uint32_t>(rank), blobs[rank], gather_.current());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  sendDown(std::make_shared<const std::vector<std::uint8_t>>(std::move(all)));
}

// New parents get blobs that other ranks may have sent on already, so some come twice after losses.
void Node::handleGather(Peer& peer, const Frame& frame) {
  const bool early = gather_.early(frame.sequence);
  if (gather_.stale(frame.sequence) || (gather_.lost(static_cast<int>(frame.rank)) && !early)) return;
  if (peer.rank < group_.rank || !gather_.plausible(frame.sequence)) return violate(peer, "an unexpected blob");
  const bool kept = early || isRoot();
  if (kept && !gather_.add(frame.sequence, static_cast<int>(frame.rank), frame.payload)) {
    return early || anyLost_ ? void() : violate(peer, "a blob twice");
  }
  if (early ? parentState() == ParentState::attached : !isRoot()) {
    return sendUp(share(FrameType::gather, static_cast<int>(frame.rank), frame.payload, frame.sequence));
  }
  if (gather_.running() && frame.sequence == gather_.current() && gather_.complete()) sendResults();
}

void Node::handleResult(Peer& peer, const Frame& frame) {
  if (gather_.stale(frame.sequence) || gather_.lost(static_cast<int>(frame.rank))) return;
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
  if (anyLost_) throw Error(*why);  // children of lost ranks may want to come here
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
    ranks = {parentRank()};
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
    suspects = {parentRank()};
  }
  const std::string sentence =
      fmt::format("{} did not complete {} within {} ms", describeRanks(suspects, total), what, group_.timeout.count());
  announce({group_.rank, moeTimeout, sentence});
  flush();  // sends to the others first, because a log may take time
  if (group_.log != nullptr) group_.log->write(moeLogWarn, "net", "{}", sentence);
  throw Error(moeTimeout, sentence);
}

// ---- Recovery ----

// The generation in which others have failed last. If it is one that this rank has not reached, they wait in the next.
std::optional<Generation> Node::latestFailed() const {
  std::optional<Generation> latest;
  for (const Failure& failure : failures_) {
    const bool counts = !failure.death && !isNewer(generation_, failure.generation);
    if (counts && (!latest || isNewer(failure.generation, *latest))) latest = failure.generation;
  }
  return latest;
}

bool Node::mayRecover() const {
  const auto ended = [&](const Failure& failure) {
    return failure.rank == group_.rank && (failure.death || failure.generation == generation_);
  };
  if (std::any_of(failures_.begin(), failures_.end(), ended)) return false;
  for (int rank = 0; rank < group_.nranks; ++rank) {
    if (goneUnaccepted(rank)) return losses_ == Losses::accepted;
  }
  return std::any_of(failures_.begin(), failures_.end(), [&](const Failure& failure) {
    return failure.again && failure.rank != group_.rank && !isNewer(generation_, failure.generation);
  });
}

void Node::recover(Failure why, Losses losses) {
  round(0);  // reads what has arrived, and the mail
  why.again = true;
  if (!latestFailed()) announce(why);
  generation_ = static_cast<Generation>((*latestFailed() | 1) + 1);
  losses_ = losses;
  if (losses == Losses::accepted) takeLosses();
  forgetFailures();
  beginGeneration();
}

void Node::beginGeneration() {
  gather_.restart(generation_, lost_);
  passFirstBlobs();
  if (reparent_) reparent_->hurry();
  lateWaits_ = {};
  verdict_.reset();
  for (const auto& peer : peers_) {
    peer->answerEnd.reset();
    peer->lives = false;
  }
}

void Node::takeLosses() {
  for (int rank = 0; rank < group_.nranks; ++rank) {
    if (rank == group_.rank || !goneUnaccepted(rank)) continue;
    lost_[static_cast<std::size_t>(rank)] = anyLost_ = true;
  }
  findRoot();
}

void Node::findRoot() {
  root_ = 0;
  while (lost(root_)) ++root_;
}

// One failure of the generations before stays, for new neighbours.
void Node::forgetFailures() {
  bool told = false;
  std::erase_if(failures_, [&](const Failure& failure) {
    const bool before = !isNewer(static_cast<Generation>(generation_ - 2), failure.generation);
    return !failure.death && (!before || std::exchange(told, true));
  });
  std::erase_if(newFailures_, [&](const Failure& failure) { return !failure.death || lost(failure.rank); });
  failed_ = died_;
  firstFailure_.reset();
  for (const Failure& failure : failures_) {
    if (!firstFailure_ && failure.death && !lost(failure.rank)) firstFailure_ = failure;
  }
  if (firstLeft_ && lost(*firstLeft_)) firstLeft_.reset();
}

// A generation has begun. Its first blobs are at the parent already, if there is one, as are all early blobs.
void Node::passFirstBlobs() {
  heldForParent_.clear();
  if (isRoot()) return;
  auto first = gather_.takeFirstFrames();
  if (parentState() != ParentState::attached) heldForParent_ = std::move(first);
}

// ---- Newcomers ----

// The process that had the number may still be a neighbour, if it was given up. Its end is not news any more.
void Node::expect(int rank, Incarnation incarnation, std::vector<Address> addresses) {
  const auto index = static_cast<std::size_t>(rank);
  if (!lost(rank) || !isNewer(incarnation, incarnation_[index])) return;
  incarnation_[index] = incarnation;
  group_.addresses[index] = std::move(addresses);
  failed_[index] = false;
  died_[index] = false;
  left_[index].store(false);
  leaving_[index].store(false);
  std::erase_if(failures_, [&](const Failure& failure) { return failure.rank == rank; });
  std::erase_if(peers_, [&](const auto& peer) { return peer->rank == rank; });
}

// If a newcomer was given up meanwhile, it is a member all the same, and the collectives of this generation fail.
void Node::takeIn(std::span<const int> ranks) {
  generation_ = static_cast<Generation>(generation_ | 1);
  for (const int rank : ranks) {
    lost_[static_cast<std::size_t>(rank)] = false;
    if (left(rank) && !firstLeft_) firstLeft_ = rank;
  }
  for (const Failure& failure : failures_) {
    if (failure.death && !lost(failure.rank) && !firstFailure_) firstFailure_ = failure;
  }
  findRoot();
  beginGeneration();
}

void Node::beginAs(Generation generation, const std::vector<Standing>& ranks) {
  generation_ = generation;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    incarnation_[rank] = ranks[rank].incarnation;
    lost_[rank] = ranks[rank].lost;
    left_[rank].store(ranks[rank].left);
    died_[rank] = failed_[rank] = ranks[rank].lost && !ranks[rank].left;
  }
  anyLost_ = true;
  findRoot();
  gather_.restart(generation_, lost_);
}

}  // namespace moe::bootstrap
