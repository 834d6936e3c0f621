// One rank's place in the tree of ranks: its connections and their traffic. One thread at a time calls it:
// first the one that initialises the communicator, later the monitor's. round() does all work.
//
// Three kinds of news are flooded over the tree, each once per subject. A failure: a rank died or announced one.
// Leaving: a rank has no more work and waits until others have none. A goodbye: a rank leaves, which is no failure.
//   - A neighbour that closes its connection without a goodbye has died. Its death may cut the tree into parts. The
//     dead rank touched all of them, so every part has a rank that notices and floods the news.
//   - A leaving rank waits, for a bounded time, until its neighbours have passed its goodbye on. Its children then
//     connect to another rank below theirs (reparent.h). Both sides of a new connection first tell each other all
//     that they know (State, Failure and Late frames). So a leaving inner rank cuts the tree only for that time, and
//     no news gets lost.
// A rank whose wait was late has failed, but not through its own fault. It finds out who is to blame (node_late.cc).
// A fourth kind of news says that its wait was late. Every rank that receives it asks its neighbours whether they
// live. A neighbour that does not answer is to blame. If all answer, the rank at the end of the chain of late waits is.
//
// Recovery: the group goes on after failures. Frames of such news, and of collectives, carry the generation of their
// sender, which recover() raises, because some are on their way meanwhile (decision 0122). A rank that has died or left
// may be lost: recover() takes it out of the collectives of the new generation. Each rank takes out those that it knows
// of. If it hears of one more, it begins yet another generation, and tells the others.
//
// Newcomers: a new process takes the number of a lost rank (decision 0125). Survivors expect() it, which counts up the
// incarnation of that number. News of a rank count for one incarnation. When all survivors have done so, takeIn()
// begins a generation with the newcomer in it. Recoveries begin even generations, and takeIn() odd ones.
//
// Collectives: every blob goes up the tree alone, as soon as it comes, so that the root knows which ranks are missing.
// When all have arrived, the root sends them down. Outside a collective, too, blobs go up and stay at the root, because
// other ranks may start one first.
//   - The root is the lowest rank that is not lost. A rank whose parent has gone looks for another one meanwhile.
//   - A rank keeps blobs of a newer generation until it begins that one, and each new parent gets them too. Otherwise
//     a parent could take them with it whose death the sender has known of, and nobody would send them again.
//   - All ranks complete a collective with the same lost ranks. News of a loss went up to the root, and down from
//     there, ahead of the blobs of ranks that knew of it. So a rank that did not hears of it before the collective is
//     complete.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/log.h"
#include "bootstrap/group/bootstrap.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/group/mailbox.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/link.h"
#include "bootstrap/net/lobby.h"
#include "bootstrap/net/poll_set.h"

namespace moe::bootstrap {

// The shape of the tree that connects the ranks: a complete tree of fan-out 16. 17 ranks are a star, 273 ranks have
// depth 2 and 4369 have depth 3. A parent's rank is always below its children's, even after repairs, so there are no
// cycles.
constexpr int kFanOut = 16;

constexpr int parentOf(int rank) {
  return (rank - 1) / kFanOut;
}  // rank > 0

struct Group {
  int rank = 0;
  int nranks = 1;
  Key key{};                                    // key of this meeting; all connections between its ranks use it
  std::vector<std::vector<Address>> addresses;  // addresses of every rank's listener
  std::chrono::milliseconds timeout{};
  const Log* log = nullptr;
};

// The bookkeeping of one rank's all-gathers: which blobs have arrived, and what is known about the missing ranks. It
// does no I/O; Node feeds it. Operations are numbered, because a rank can receive a blob of the next one before it has
// started that one itself: the generation in the high byte, the operation of the generation in the low one.
// node_gather.cc.
class Gather {
 public:
  explicit Gather(int nranks) : nranks_(static_cast<std::size_t>(nranks)) {}

  std::uint16_t begin();  // starts the next operation and returns its number
  std::uint16_t current() const { return sequence_; }
  bool running() const { return running_; }
  // Gives up what runs. Blobs for the first operation of this generation, and of newer ones, stay. Later operations do
  // without the blobs of lost ranks.
  void restart(Generation generation, const std::vector<bool>& lost);

  // Of the generation that runs.
  bool lost(int rank) const { return lost_[static_cast<std::size_t>(rank)]; }

  // Returns false for an impossible blob: it belongs to a wrong operation, or its rank has already sent one.
  bool add(std::uint16_t sequence, int rank, std::span<const std::uint8_t> blob);
  // The running operation, the one after it, or the first of a newer generation.
  bool plausible(std::uint16_t sequence) const;
  // An operation of an earlier generation.
  bool stale(std::uint16_t sequence) const { return isNewer(generationOf(sequence_), generationOf(sequence)); }
  // An operation of a generation that this rank has not begun.
  bool early(std::uint16_t sequence) const { return isNewer(generationOf(sequence), generationOf(sequence_)); }

  // Frames with the early blobs that have come.
  std::vector<SharedBytes> earlyFrames() const;
  // The same for those of the generation that has just begun, which are then gone from here.
  std::vector<SharedBytes> takeFirstFrames();

  bool complete() { return roundOf(sequence_).count == nranks_ - lostCount_; }
  const std::vector<std::vector<std::uint8_t>>& blobs() { return roundOf(sequence_).blobs; }
  std::vector<std::vector<std::uint8_t>> finish();  // ends the operation
  std::vector<int> missing();                       // ranks that are not lost, and whose blobs have not come

  // Keeps the parent's latest news about the missing ranks.
  void noteWaiting(std::vector<int> ranks, std::size_t total);
  bool waitingFresh() const { return !waiting_.empty() && Deadline::Clock::now() - waitingAt_ < kFresh; }
  const std::vector<int>& waiting() const { return waiting_; }
  std::size_t waitingTotal() const { return waitingTotal_; }

 private:
  static constexpr std::chrono::milliseconds kFresh{2500};
  static constexpr Generation generationOf(std::uint16_t sequence) { return static_cast<Generation>(sequence >> 8); }
  static constexpr std::uint16_t sequenceOf(Generation generation, unsigned operation) {
    return static_cast<std::uint16_t>(unsigned{generation} << 8 | (operation & 0xff));
  }
  struct Round {
    std::vector<std::vector<std::uint8_t>> blobs;
    std::vector<bool> have;
    std::size_t count = 0;
  };
  static void appendFrames(std::uint16_t sequence, const Round& round, std::vector<SharedBytes>& frames);
  // Begins without blobs. A round has room for all ranks from then on, because restart() may keep it.
  Round& roundOf(std::uint16_t sequence);

  std::size_t nranks_;
  std::vector<bool> lost_ = std::vector<bool>(nranks_);
  std::size_t lostCount_ = 0;
  std::uint16_t sequence_ = 0;
  bool running_ = false;
  std::map<std::uint16_t, Round> rounds_;  // at most the running one, the next, and one of a newer generation
  std::vector<int> waiting_;
  std::size_t waitingTotal_ = 0;
  Deadline::Clock::time_point waitingAt_{};
};

class Reparent;

class Node {
 public:
  Node(Group group, std::vector<Fd> listeners);
  ~Node();

  const Group& group() const { return group_; }
  Mailbox& mailbox() { return mailbox_; }

  // Adds something that takes part in every round. The caller keeps it alive until it removes it.
  void addSource(Source& source) { sources_.push_back(&source); }
  void removeSource(Source& source) { std::erase(sources_, &source); }

  // Waits at most `waitMs` for traffic and handles it. Announces what is in the mailbox.
  void round(int waitMs);
  void readMail();

  // Takes a new connection to a rank below this one. That rank becomes the parent when it has answered.
  void attachTo(int parent, std::unique_ptr<Link> link);
  enum class ParentState { none, asked, attached };
  ParentState parentState() const;
  // From now on, until it says goodbye, this rank looks for another parent in its rounds when its parent has gone.
  void seekParents();
  bool seeksParent() const;  // it is doing so, and has not failed at all candidates just now
  static constexpr FrameMask kPeerFrames = maskOf(
      FrameType::attach, FrameType::state, FrameType::gather, FrameType::result, FrameType::waiting, FrameType::failure,
      FrameType::goodbye, FrameType::goodbyeAck, FrameType::leaving, FrameType::late, FrameType::ask, FrameType::alive);

  // See Bootstrap. `what` names the operation in sentences.
  std::vector<std::vector<std::uint8_t>> allGather(std::span<const std::uint8_t> mine, const char* what,
                                                   Deadline deadline);
  // The timeout that sentences name, and after which connections count as dead.
  void setTimeout(std::chrono::milliseconds timeout) { group_.timeout = timeout; }
  void throwIfBroken(const char* what) const;  // throws if a rank has failed or left, and is not lost
  bool broken() const { return firstFailure_ || firstLeft_; }
  // Another rank has failed, and none that is not lost has died or left. The group may go on with recover().
  bool othersGaveUp() const {
    return firstFailure_ && firstFailure_->rank != group_.rank && !firstFailure_->death && !firstLeft_;
  }

  // Logs once that ranks which look for a new parent cannot connect, because this process lacks descriptors or memory.
  void warnOfShortage();

  void announce(Failure failure) {
    failure.generation = generation_;
    learnFailure(failure, nullptr);
  }
  // Goes on after failures. It begins the generation behind the latest one in which a rank has failed, and forgets what
  // counted before. If this rank has heard of no failure, it announces `why`, so that every rank hears of one before it
  // meets frames of the new generation. Deaths and goodbyes still count, unless losses are accepted.
  void recover(Failure why, Losses losses);
  bool lost(int rank) const { return lost_[static_cast<std::size_t>(rank)]; }
  bool gone(int rank) const { return died(rank) || left(rank); }
  Generation generation() const { return generation_; }
  Incarnation incarnation(int rank) const { return incarnation_[static_cast<std::size_t>(rank)]; }

  // A newcomer will take the number of a lost rank. Does nothing if it was given up meanwhile.
  void expect(int rank, Incarnation incarnation, std::vector<Address> addresses);
  // Begins the next generation, in which newcomers take part. Every rank has expected them.
  void takeIn(std::span<const int> ranks);
  // For a newcomer, before its first round: the state that the group has reached.
  struct Standing {
    bool lost, left;
    Incarnation incarnation;
  };
  void beginAs(Generation generation, const std::vector<Standing>& ranks);
  bool mayRecover() const;  // see Bootstrap
  // Failures that this rank has learned of or found by asking, without those that it has announced.
  std::vector<Failure> takeNewFailures() { return std::exchange(newFailures_, {}); }
  bool failed(int rank) const { return failed_[static_cast<std::size_t>(rank)]; }
  bool died(int rank) const { return died_[static_cast<std::size_t>(rank)]; }
  bool left(int rank) const { return left_[static_cast<std::size_t>(rank)].load(); }  // any thread

  // From now on a rank counts as dead. See Bootstrap.
  void takeForDead(int rank, const std::string& sentence) {
    if (!died(rank) && !left(rank)) learnDeath(rank, sentence, nullptr);
  }

  // The process of a rank has ended, perhaps while others hold its connections open. Returns true if this was handled
  // or was no news, and false if the caller must ask again. `goodbyesHeard`: if the rank has said goodbye, this rank
  // has received it.
  bool processEnded(int rank, bool goodbyesHeard);
  // All addresses of a rank refuse connections. It has died, or has left without this rank's knowledge. That makes a
  // difference only to a collective that goes on without it.
  void nobodyListens(int rank);

  // True while this rank does not know who is to blame for its late wait.
  bool asksWhoIsLate() const { return verdict_ && !firstFailure_; }

  // Tells every rank that this one will leave. It goes on as before.
  void announceLeaving() { learnLeaving(group_.rank, incarnation(group_.rank), nullptr); }
  // True if the rank has no more work and will leave, or has left. Any thread.
  bool leaving(int rank) const { return leaving_[static_cast<std::size_t>(rank)].load() || left(rank); }

  // Tells every rank that this one leaves, passes news on meanwhile, and closes all connections.
  void sayGoodbye(Deadline deadline);

 private:
  struct Peer {
    int rank;
    std::unique_ptr<Link> link;
    bool greeted = false;                              // its State has arrived
    bool leaving = false;                              // it has said goodbye: its end is not a death
    bool acked = false;                                // it has passed on our goodbye
    std::optional<Deadline> answerEnd = std::nullopt;  // limit for its answer whether it lives; none: not asked
    bool lives = false;                                // it has answered
    bool quiet = false;                                // the latest round has read everything that it had sent
    std::size_t index = 0;
  };

  void takeTurn(int waitMs);
  bool isRoot() const { return group_.rank == root_; }
  Peer* parent();
  int parentRank();  // for sentences: the parent, or the rank that should be it
  void welcome(std::unique_ptr<Link> guest);
  void greet(Peer& peer);
  void handle(Peer& peer, const Frame& frame);
  void handleState(Peer& peer, const Frame& frame);
  void handleGather(Peer& peer, const Frame& frame);
  void handleResult(Peer& peer, const Frame& frame);
  void handleWaiting(const Frame& frame);
  void violate(Peer& peer, const char* what);
  void lose(const Peer& peer);
  std::string nameOf(int rank) const;
  std::string describeLoss(const Peer& peer) const;
  void learnDeath(int rank, const std::string& sentence, const Peer* from);
  void learnFailure(const Failure& failure, const Peer* from);
  void takeFailure(const Failure& failure);
  bool goneUnaccepted(int rank) const { return gone(rank) && !lost(rank); }
  std::optional<Generation> latestFailed() const;
  void takeLosses();
  void findRoot();
  void beginGeneration();
  bool concerns(int rank, Incarnation incarnation);
  void forgetFailures();
  void passFirstBlobs();
  void learnGoodbye(int rank, Incarnation incarnation, Peer* from);
  void learnLeaving(int rank, Incarnation incarnation, const Peer* from);
  void askWhoIsLate(const LateWait& wait);
  void tellLateWaits(Peer& peer);
  void ask(Peer& peer);
  bool owesAnswer(const Peer& peer) const;
  void learnLate(const LateWait& wait, Generation generation, const Peer* from);
  bool judges() const { return !firstFailure_ && !left(group_.rank); }
  void judge();
  void conclude(Failure why);
  Failure silence(int rank) const;
  int judgeMs() const;
  void flood(const SharedBytes& bytes, const Peer* except);
  void sendUp(SharedBytes bytes);  // keeps them until there is a parent
  void sendDown(const SharedBytes& bytes);
  void flush();

  void sendResults();
  void sendWaiting();
  [[noreturn]] void giveUp(const char* what);
  void throwIfChildrenWait() const;
  bool hasChild(int rank) const;
  bool allDrained() const;

  Group group_;
  Mailbox mailbox_;
  Lobby lobby_;
  std::vector<Source*> sources_;
  std::vector<std::unique_ptr<Peer>> peers_;
  PollSet set_;

  std::vector<std::atomic<bool>> left_, leaving_;
  Generation generation_ = 0;
  std::vector<Incarnation> incarnation_;
  std::vector<bool> failed_, died_, lost_;
  Losses losses_ = Losses::refused;  // what the latest recover() said
  bool anyLost_ = false;             // a rank was lost once, so ranks may have other parents than at first
  bool collecting_ = false;          // a collective runs
  int root_ = 0;
  std::optional<int> firstLeft_;
  std::optional<Failure> firstFailure_;
  // For new neighbours: deaths, failures of this generation and of newer ones, in which other ranks are already, and
  // one of the generation before, so that ranks that are still there go on.
  std::vector<Failure> failures_;
  std::vector<Failure> newFailures_;
  LateWaits lateWaits_;
  std::optional<Deadline> verdict_;  // set if a wait of this rank was late: when it stops asking who is to blame

  Gather gather_;
  std::vector<SharedBytes> heldForParent_;  // of this generation
  bool warnedOfShortage_ = false;
  std::unique_ptr<Reparent> reparent_;  // none: this rank does not look for other parents. A source of rounds, so last
};

// While it lives, a source takes part in a node's rounds.
class AddedSource {
 public:
  AddedSource(Node& node, Source& source) : node_(node), source_(source) { node_.addSource(source_); }
  ~AddedSource() { node_.removeSource(source_); }
  AddedSource(const AddedSource&) = delete;
  AddedSource& operator=(const AddedSource&) = delete;

 private:
  Node& node_;
  Source& source_;
};

// Brings one rank into its group (join.cc): the rendezvous, the connection to its parent in the tree, and a first
// barrier. Throws Error; see Bootstrap::join.
std::unique_ptr<Node> joinGroup(const moeUniqueId_t& id, const Options& options);

// The same for a newcomer (join_newcomer.cc): waits until survivors take it in. See Bootstrap::joinAsNewcomer.
std::unique_ptr<Node> joinAsNewcomer(const moeUniqueId_t& id, const Options& options,
                                     std::span<const std::uint8_t> card, std::vector<std::uint8_t>* table);
// What a sponsor sends it: the state of the group, and the communicator's own table.
std::vector<std::uint8_t> tableFor(const Node& node, std::span<const std::uint8_t> table);

}  // namespace moe::bootstrap
