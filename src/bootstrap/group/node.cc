#include "bootstrap/group/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "bootstrap/group/reparent.h"
#include "bootstrap/net/socket.h"

namespace moe::bootstrap {
namespace {

SharedBytes failureFrame(const Failure& failure) {
  return share(FrameType::failure, failure.rank, encodeReason(failure.result, failure.sentence), sequenceOf(failure));
}

Failure failureOf(const Frame& frame) {
  Failure failure = decodeReason(static_cast<int>(frame.rank), frame.payload);
  failure.death = (frame.sequence & kDeathSequence) != 0;
  failure.again = !failure.death && (frame.sequence & kAgainSequence) != 0;
  failure.generation = failure.death ? Generation{0} : static_cast<Generation>(frame.sequence);
  failure.incarnation = failure.death ? static_cast<Incarnation>(frame.sequence) : Incarnation{0};
  return failure;
}

}  // namespace

Node::Node(Group group, std::vector<Fd> listeners)
    : group_(std::move(group)),
      lobby_(std::move(listeners), group_.key, kPeerFrames, Lobby::Limits{}),
      left_(static_cast<std::size_t>(group_.nranks)),
      leaving_(static_cast<std::size_t>(group_.nranks)),
      incarnation_(static_cast<std::size_t>(group_.nranks)),
      failed_(static_cast<std::size_t>(group_.nranks)),
      died_(static_cast<std::size_t>(group_.nranks)),
      lost_(static_cast<std::size_t>(group_.nranks)),
      gather_(group_.nranks) {}

Node::~Node() = default;

void Node::round(int waitMs) {
  try {
    takeTurn(waitMs);
  } catch (...) {
    // Traffic that had arrived may be lost, so this rank is of no more use to the group.
    const Error error = currentErrorOf(group_.rank);
    announce({group_.rank, error.result(), error.what()});
    throw Error(error);
  }
  for (Source* source : sources_) source->serve(set_);  // last, because these may throw, and the group goes on
}

void Node::takeTurn(int waitMs) {
  if (reparent_) {
    reparent_->step();
    waitMs = collecting_ && broken() ? 0 : std::min(waitMs, reparent_->waitMsMax());
  }
  set_.clear();
  mailbox_.arm(set_);
  lobby_.arm(set_);
  for (const auto& peer : peers_) peer->index = set_.add(peer->link->fd(), peer->link->wanted());
  waitMs = std::min({waitMs, lobby_.waitMsMax(), judgeMs()});
  for (Source* source : sources_) {
    source->arm(set_);
    waitMs = std::min(waitMs, source->waitMsMax());
  }
  set_.wait(std::max(waitMs, 0));
  mailbox_.serve(set_);
  lobby_.serve(set_);
  for (const auto& peer : peers_) {
    peer->quiet = (set_.at(peer->index) & POLLIN) == 0;
    peer->link->pump(set_.at(peer->index));
  }
  for (auto& guest : lobby_.takeGuests()) welcome(std::move(guest));
  readMail();
  for (const auto& peer : peers_) {
    while (const auto frame = peer->link->next()) handle(*peer, *frame);
  }
  for (const auto& peer : peers_) {
    if (peer->link->closed()) lose(*peer);
  }
  std::erase_if(peers_, [](const auto& peer) { return peer->link->closed(); });
  judge();
  flush();
}

void Node::readMail() {
  for (const Failure& failure : mailbox_.take()) announce(failure);
  for (const LateWait& wait : mailbox_.takeLateWaits()) askWhoIsLate(wait);
  if (mailbox_.workEnded()) announceLeaving();
}

void Node::flush() {
  for (const auto& peer : peers_) {
    if (!peer->link->drained()) peer->link->pump(POLLOUT);
  }
}

bool Node::allDrained() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [&](const auto& peer) { return peer->link->drained() || died(peer->rank); });
}

// ---- Neighbours ----

Node::Peer* Node::parent() {
  for (const auto& peer : peers_) {
    if (peer->rank < group_.rank && !peer->leaving && !left(peer->rank) && !died(peer->rank)) return peer.get();
  }
  return nullptr;
}

int Node::parentRank() {
  if (const Peer* peer = parent()) return peer->rank;
  for (int rank = group_.rank; rank > 0;) {
    rank = parentOf(rank);
    if (!lost(rank)) return rank;
  }
  return root_;
}

Node::ParentState Node::parentState() const {
  const Peer* peer = const_cast<Node*>(this)->parent();
  if (peer == nullptr) return ParentState::none;
  return peer->greeted ? ParentState::attached : ParentState::asked;
}

void Node::seekParents() {
  if (!reparent_) reparent_ = std::make_unique<Reparent>(*this);
}

bool Node::seeksParent() const {
  return reparent_ && reparent_->needed() && !reparent_->resting();
}

void Node::attachTo(int parent, std::unique_ptr<Link> link) {
  keepAlive(link->fd(), group_.timeout);
  auto peer = std::make_unique<Peer>(Peer{parent, std::move(link)});
  Writer payload;
  payload.u32(static_cast<std::uint32_t>(group_.nranks));
  peer->link->send(FrameType::attach, group_.rank, payload.view(), incarnation(group_.rank));
  greet(*peer);
  peers_.push_back(std::move(peer));
  flush();
}

// Admits a rank above this one, which wants to be a child. A process whose number has been given to another one is not
// that rank any more.
void Node::welcome(std::unique_ptr<Link> guest) {
  const auto frame = guest->next();
  if (!frame || frame->type != FrameType::attach) return;
  const int rank = static_cast<int>(frame->rank);
  const bool sameGroup = Reader(frame->payload).u32() == static_cast<std::uint32_t>(group_.nranks);
  const bool known = std::any_of(peers_.begin(), peers_.end(), [&](const auto& peer) { return peer->rank == rank; });
  if (!sameGroup || known || rank <= group_.rank || rank >= group_.nranks || left(rank)) return;
  if (frame->sequence != incarnation(rank)) return;
  keepAlive(guest->fd(), group_.timeout);
  peers_.push_back(std::make_unique<Peer>(Peer{rank, std::move(guest)}));
  greet(*peers_.back());
}

// Tells a new neighbour everything that was flooded so far.
void Node::greet(Peer& peer) {
  const std::size_t bytes = (left_.size() + 7) / 8;
  std::vector<std::uint8_t> bits(2 * bytes);
  bits.insert(bits.end(), incarnation_.begin(), incarnation_.end());
  const auto set = [&](std::size_t at, std::size_t rank) {
    bits[at + rank / 8] = static_cast<std::uint8_t>(bits[at + rank / 8] | 1U << rank % 8);
  };
  for (std::size_t rank = 0; rank < left_.size(); ++rank) {
    if (left_[rank].load()) set(0, rank);
    if (leaving_[rank].load()) set(bytes, rank);
  }
  peer.link->send(FrameType::state, group_.rank, bits);
  for (const Failure& failure : failures_) peer.link->send(failureFrame(failure));
  tellLateWaits(peer);
}

void Node::lose(const Peer& peer) {
  // A rank that knows that this one leaves may close first. A rank that closes before it has greeted did not accept
  // this one: it is leaving, and others know that. If others take this one for dead, they may close too.
  if (peer.leaving || peer.acked || !peer.greeted || left(peer.rank) || died(peer.rank) || died(group_.rank)) return;
  learnDeath(peer.rank, describeLoss(peer), &peer);
}

// No rank knows more about a peer that does not answer. The peer may be well, and only the path from it cut.
std::string Node::describeLoss(const Peer& peer) const {
  const std::string& why = peer.link->reason();
  const std::string rank = nameOf(peer.rank);
  if (peer.link->error() == ETIMEDOUT)
    return fmt::format("nothing arrives from {} at rank {} any more ({})", rank, group_.rank, why);
  return fmt::format("{} has died: its connection to rank {} closed without a goodbye ({})", rank, group_.rank,
                     why.empty() ? "its process has ended" : why);
}

std::string Node::nameOf(int rank) const {
  const auto& addresses = group_.addresses[static_cast<std::size_t>(rank)];
  return fmt::format("rank {} ({})", rank, addresses.empty() ? "?" : addresses.front().text());
}

// Tells the others first, because writing a log may take time.
void Node::learnDeath(int rank, const std::string& sentence, const Peer* from) {
  const Failure failure{rank, moeRemoteError, sentence, 0, true, false, incarnation(rank)};
  learnFailure(failure, from);
  flush();
  if (group_.log != nullptr) group_.log->write(moeLogWarn, "net", "{}", sentence);
}

// When a neighbour's process has ended, its last frames are in this rank's socket, so a round reads them all. News of
// other ranks takes longer.
bool Node::processEnded(int rank, bool goodbyesHeard) {
  if (left(rank) || died(rank) || left(group_.rank)) return true;
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&](const auto& peer) { return peer->rank == rank; });
  const bool known = found == peers_.end() ? goodbyesHeard : (*found)->quiet;
  if (!known) return false;
  learnDeath(
      rank,
      fmt::format("{} has died: rank {} on the same host sees that its process has ended", nameOf(rank), group_.rank),
      found == peers_.end() ? nullptr : found->get());
  if (found != peers_.end()) (*found)->link->close("");
  return true;
}

void Node::nobodyListens(int rank) {
  if (!collecting_ || losses_ == Losses::refused || left(rank) || died(rank)) return;
  learnDeath(rank,
             fmt::format("{} has died: rank {} finds that nobody listens at its addresses", nameOf(rank), group_.rank),
             nullptr);
}

void Node::violate(Peer& peer, const char* what) {
  peer.link->reject(fmt::format("it sent {}", what));
}

// ---- News ----

void Node::sendUp(SharedBytes bytes) {
  if (parentState() == ParentState::attached) return parent()->link->send(std::move(bytes));
  heldForParent_.push_back(std::move(bytes));
}

void Node::flood(const SharedBytes& bytes, const Peer* except) {
  for (const auto& peer : peers_) {
    if (peer.get() != except) peer->link->send(bytes);
  }
}

// Whether news of a rank's incarnation count. One that this rank does not know yet was given up by others before this
// rank expected it: the number is used up, and the rank stays lost.
bool Node::concerns(int rank, Incarnation of) {
  const auto index = static_cast<std::size_t>(rank);
  if (lost(rank) && isNewer(of, incarnation_[index])) {
    incarnation_[index] = of;
    std::erase_if(failures_, [&](const Failure& failure) { return failure.death && failure.rank == rank; });
  }
  return of == incarnation_[index];
}

void Node::learnFailure(const Failure& failure, const Peer* from) {
  if (failure.death && !concerns(failure.rank, failure.incarnation)) return;
  const bool stale = !failure.death && isNewer(generation_, failure.generation);
  const bool known = std::any_of(failures_.begin(), failures_.end(), [&](const Failure& other) {
    return other.rank == failure.rank && (other.death || (!failure.death && other.generation == failure.generation));
  });
  if (stale || known) return;
  failures_.push_back(failure);
  flood(failureFrame(failure), from);
  // A new neighbour may tell of newer generations only, and nobody meets in this one any more.
  if (failure.death || failure.generation == generation_ || !firstFailure_) takeFailure(failure);
}

// A failure that counts in this generation.
void Node::takeFailure(const Failure& failure) {
  const auto index = static_cast<std::size_t>(failure.rank);
  failed_[index] = true;
  if (failure.death) died_[index] = true;
  if (lost(failure.rank)) return;
  if (!firstFailure_) firstFailure_ = failure;
  if (failure.rank != group_.rank) newFailures_.push_back(failure);
}

void Node::learnGoodbye(int rank, Incarnation of, Peer* from) {
  if (rank == group_.rank || !concerns(rank, of)) return;
  if (!left(rank)) {
    left_[static_cast<std::size_t>(rank)].store(true);
    if (!firstLeft_ && !lost(rank)) firstLeft_ = rank;
    flood(share(FrameType::goodbye, rank, {}, of), from);
  }
  if (from->rank != rank || from->leaving) return;
  from->leaving = true;
  from->link->send(FrameType::goodbyeAck, group_.rank);
}

void Node::learnLeaving(int rank, Incarnation of, const Peer* from) {
  const auto index = static_cast<std::size_t>(rank);
  if (!concerns(rank, of) || leaving_[index].exchange(true)) return;
  flood(share(FrameType::leaving, rank, {}, of), from);
}

void Node::handle(Peer& peer, const Frame& frame) {
  if (died(peer.rank)) return;  // the group goes on without it
  const bool collective = frame.type == FrameType::gather || frame.type == FrameType::result;
  if (collective && left(group_.rank)) return;  // the group goes on without this rank
  if (frame.rank >= static_cast<std::uint32_t>(group_.nranks))
    return violate(peer, "a frame about a rank that does not exist");
  switch (frame.type) {
    case FrameType::state:
      return handleState(peer, frame);
    case FrameType::gather:
      return handleGather(peer, frame);
    case FrameType::result:
      return handleResult(peer, frame);
    case FrameType::waiting:
      return handleWaiting(frame);
    case FrameType::goodbye:
      return learnGoodbye(static_cast<int>(frame.rank), static_cast<Incarnation>(frame.sequence), &peer);
    case FrameType::goodbyeAck:
      peer.acked = true;
      return;
    case FrameType::leaving:
      return learnLeaving(static_cast<int>(frame.rank), static_cast<Incarnation>(frame.sequence), &peer);
    case FrameType::failure:
      return learnFailure(failureOf(frame), &peer);
    case FrameType::late:
      return learnLate(decodeLateWait(static_cast<int>(frame.rank), frame.payload),
                       static_cast<Generation>(frame.sequence), &peer);
    case FrameType::ask:
      return peer.link->send(FrameType::alive, group_.rank, {}, frame.sequence);
    case FrameType::alive:
      if (frame.sequence == generation_) peer.lives = true;
      return;
    default:
      return violate(peer, "an unexpected frame");
  }
}

void Node::handleState(Peer& peer, const Frame& frame) {
  const std::size_t half = (left_.size() + 7) / 8;
  if (peer.greeted || frame.payload.size() != 2 * half + left_.size()) return violate(peer, "a malformed state");
  peer.greeted = true;
  for (std::size_t rank = 0; rank < left_.size(); ++rank) {
    const Incarnation of = frame.payload[2 * half + rank];
    if ((frame.payload[rank / 8] >> rank % 8 & 1) != 0) learnGoodbye(static_cast<int>(rank), of, &peer);
    if ((frame.payload[half + rank / 8] >> rank % 8 & 1) != 0) learnLeaving(static_cast<int>(rank), of, &peer);
  }
  if (parent() != &peer) return;  // it may be leaving
  for (const SharedBytes& bytes : gather_.earlyFrames()) peer.link->send(bytes);
  for (const SharedBytes& bytes : std::exchange(heldForParent_, {})) peer.link->send(bytes);
}

void Node::sayGoodbye(Deadline deadline) {
  reparent_.reset();
  readMail();
  left_[static_cast<std::size_t>(group_.rank)].store(true);
  flood(share(FrameType::goodbye, group_.rank, {}, incarnation(group_.rank)), nullptr);
  flush();
  const auto unheard = [](const auto& peer) { return !peer->acked; };
  while (!deadline.expired() && std::any_of(peers_.begin(), peers_.end(), unheard)) round(deadline.leftMs());
  // The neighbours close in turn. Waiting for that makes sure that no news passed on gets lost.
  for (const auto& peer : peers_) peer->link->finishWriting();
  while (!deadline.expired() && !peers_.empty()) round(deadline.leftMs());
  peers_.clear();
  lobby_.shut();  // a rank that looks for a new parent now sees at once that this is none
}

}  // namespace moe::bootstrap
