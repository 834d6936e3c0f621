// One rank's membership of a group of ranks. It meets the other ranks, runs small collectives while the communicator
// initialises, and passes descriptors to ranks on the same host. Afterwards it learns which ranks die, fail or leave.
// It uses sockets only. The communicator (src/comm) is its only user. node.h (the tree), rendezvous_server.h and
// handshake.h explain how it works.
//
// Sequence: join; any number of allGather, barrier, serveFd, fetchFdFrom; startMonitor; ...; leave. Between
// startMonitor and leave, holdMonitor allows collectives again, until releaseMonitor. One thread at a time, unless a
// function says otherwise. If a rank leaves before all others have finished their collectives, these fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/group/host_identity.h"
#include "bootstrap/group/newcomer.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/keyed_hash.h"
#include "moecomm.h"

namespace moe::bootstrap {

struct Options {
  int nranks = 1;
  int rank = 0;
  std::chrono::milliseconds timeout{30000};  // timeout of join, and of each collective
  std::string interfaceName;                 // empty: chosen
  int rendezvousRank = -1;                   // the rank that serves the unique id; -1: not known. Sentences name it if
                                             // the rendezvous is missing
  const Log* log = nullptr;                  // may be null; outlives the Bootstrap
};

class Node;
class Monitor;
class FdServer;

// The ranks that a rank waits for before it leaves: [first, first + count). The wait ends when each of them is leaving
// too, has left or has failed, or after `patience`.
struct Company {
  int first = 0, count = 0;
  std::chrono::milliseconds patience{0};
};

class Bootstrap {
 public:
  using Failure = bootstrap::Failure;
  using Losses = bootstrap::Losses;

  // Returns when all ranks have joined. Throws Error: moeInvalidUsage (ranks do not fit together, wrong secret),
  // moeTimeout (naming the missing ranks), moeRemoteError (naming a dead rank), moeInvalidArgument, moeSystemError.
  static std::unique_ptr<Bootstrap> join(const moeUniqueId_t& id, const Options& options);
  // For a newcomer, with an id of awaitNewcomer(). Returns when the survivors have taken it in: they have called
  // takeIn(), and its collectives are theirs from now on. `card` is for check() and for all survivors; `table` comes
  // from the sponsor. Throws Error as join does, and the sponsor's reason for a refusal.
  static std::unique_ptr<Bootstrap> joinAsNewcomer(const moeUniqueId_t& id, const Options& options,
                                                   std::span<const std::uint8_t> card,
                                                   std::vector<std::uint8_t>* table);
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const;
  int nranks() const;

  // Collective, before startMonitor. Blob sizes may differ; each is at most 16 MiB. The result has one blob per rank.
  // Throws as join does; the sentence of a timeout names `what`. After a failure all later collectives throw it again.
  std::vector<std::vector<std::uint8_t>> allGather(std::span<const std::uint8_t> mine,
                                                   const char* what = "the all-gather");
  void barrier();

  // For use between collectives: handles what has arrived, without waiting. Throws what a collective would throw if a
  // rank has failed, or has left before `what` was done.
  void throwIfBroken(const char* what);

  // Offers a duplicate of `fd` to the other ranks on this host, until stopServingFd or startMonitor. This rank serves
  // it inside its own collectives and fetchFdFrom calls. So the sequence is: serveFd, allGather, fetchFdFrom each peer,
  // barrier, stopServingFd. A fetch gives up three quarters of the timeout after the last collective. The other ranks
  // wait in the next collective, and would otherwise report this rank as missing first.
  void serveFd(int fd);
  Fd fetchFdFrom(int rank, Deadline deadline);
  void stopServingFd();

  // Starts this rank's one background thread. Until leave() returns, it calls
  //   - onFailure once for every rank that dies or announces a failure, in the order in which this rank learns of them;
  //     and once with this rank's own failure, when it finds out who was to blame for a late wait (reportLateWait);
  //   - onTick every `tick`, if it is set. onTick must cost next to nothing.
  // Callbacks must not call leave or destroy the Bootstrap. They may call what any thread may call. `processes` says
  // where all ranks run. If it is not empty, the thread watches those of this host.
  void startMonitor(std::function<void(const Failure&)> onFailure, std::function<void()> onTick = {},
                    std::chrono::milliseconds tick = std::chrono::milliseconds(10),
                    const std::vector<HostIdentity>& processes = {});

  // After startMonitor: stops the background thread, so that this thread may run collectives, serve descriptors and
  // fetch them. Every rank must do so within `timeout`, which is the timeout of these collectives. Callbacks come again
  // after releaseMonitor. It stops serving, and reports what was learned meanwhile. Throws moeInvalidUsage in a
  // callback.
  void holdMonitor(std::chrono::milliseconds timeout);
  void releaseMonitor() noexcept;
  // Within holdMonitor: the timeout of the next collectives.
  void setTimeout(std::chrono::milliseconds timeout);

  // Within holdMonitor: goes on after failures. Collectives are possible again, as soon as all other ranks have called
  // it too. With Losses::accepted, ranks that have died or left are lost from now on: collectives are those of the
  // others, and the blobs of lost ranks are empty. With Losses::refused, they still fail, and name a rank that has died
  // or left, unless it was lost before. A rank that others take for dead cannot go on: its collectives name itself.
  // Callbacks are not called any more for what counted before. `result` and `sentence` are for ranks that have not
  // heard of a failure.
  //
  // A collective that completes has done so with the same lost ranks everywhere. If one more rank is lost meanwhile, it
  // fails on the ranks that it has not completed on. They call recover() again as long as mayRecover(), which ends the
  // collectives of the others and reaches their callbacks, so that these come again too.
  void recover(moeResult_t result, const std::string& sentence, Losses losses = Losses::refused);
  // Within holdMonitor, before recover(): from now on a rank counts as dead, though it may live. Whoever hears of it
  // learns `sentence`, that rank too. Every other rank should call it, but one is enough.
  void giveUp(int rank, const std::string& sentence);
  // The ranks that collectives do without since the latest recover(), ascending. Between collectives only.
  std::vector<int> lost() const;
  bool isLost(int rank) const;
  // After a collective has failed: recover() helps, because others have called it again, or because a rank has died or
  // left and the latest recover() accepted losses. False if this rank has given up, or if others take it for dead.
  bool mayRecover() const;
  // After a collective has failed: the reason is another rank that gave up, and no death. Then recover() may help, if
  // the news is from before: the rank may have called it since. Otherwise it does not come.
  bool othersGaveUp() const;

  // ---- Newcomers: new processes take the numbers of lost ranks (decision 0125). Within holdMonitor ----

  // Serves an id for a process that takes the number of `rank`, which has died or left, until the number is taken. A
  // later call for the same rank replaces the id. `check` throws the reason why a newcomer does not fit, which ends its
  // wait. It runs in rounds, also those of the monitor. Throws moeInvalidUsage (the rank lives), moeSystemError,
  // moeInvalidArgument (no such interface).
  moeUniqueId_t awaitNewcomer(int rank, const std::string& interfaceName, CheckNewcomer check);
  // Collective, after recover() has accepted losses. The newcomers that wait, at most one for each lost rank: the same
  // on all ranks. `what` names it in sentences.
  std::vector<Newcomer> gatherNewcomers(const char* what);
  // Ends the wait of such a newcomer, if this rank is its sponsor.
  void refuse(const Newcomer& newcomer, moeResult_t result, const std::string& sentence);
  // Collective: takes these newcomers in, which run where `processes` say. `table` is for the newcomers of this rank.
  // From now on collectives are those of all ranks and of the newcomers. If one fails, giveUp() the newcomers and
  // recover() without them.
  void takeIn(std::span<const Newcomer> newcomers, std::span<const HostIdentity> processes,
              std::span<const std::uint8_t> table, const char* what);

  // Any thread, never blocks. Tells every other rank, which learns it by onFailure or by an exception in its
  // collective. Before startMonitor, this rank's next collective or leave sends it, and a collective that is running
  // here throws it.
  void announceFailure(moeResult_t result, const std::string& sentence);

  // For a rank that gives up before startMonitor. Tells the others, unless it learned of the failure from them.
  void announceIfFirst(const Error& error);

  // Any thread, never blocks, after startMonitor. Reports a wait of this rank that ended by its deadline. The wait was
  // for rank `awaited`. If that is this rank, it was for a part of itself. The group then finds out who is to blame and
  // tells every rank. Within kVerdict (failure.h) it calls onFailure with the answer, unless it has called it with
  // an earlier failure. A rank that leaves waits for that.
  void reportLateWait(int awaited, moeResult_t result, const std::string& sentence);

  // Any thread, never blocks, after startMonitor. Tells every other rank that this rank is going to leave. It does
  // nothing for the others any more, and everything that it has sent has arrived.
  void announceLeaving() noexcept;

  bool hasLeft(int rank) const;    // any thread: the rank has said goodbye
  bool isLeaving(int rank) const;  // any thread: the same, or the rank has announced that it is leaving

  // Waits for `company` (needs the monitor), says goodbye to all for at most about a second, and ends the monitor.
  // Idempotent. Afterwards only the queries may be called.
  void leave(const Company& company = {}) noexcept;

  // A key for one purpose of `rank`, known only to the ranks of this group. Each process of a rank has another one.
  Key keyFor(std::string_view purpose, int rank) const;

  // Where a rank listens, for tests and log lines.
  const std::vector<Address>& addressesOf(int rank) const;

 private:
  explicit Bootstrap(std::unique_ptr<Node> node);
  void stopAwaiting(const std::function<bool(const NewcomerServer&)>& which) noexcept;
  NewcomerServer* serverOf(const Newcomer& newcomer) const;
  void requireCollectives(const char* what) const;
  std::vector<std::vector<std::uint8_t>> collect(std::span<const std::uint8_t> mine, const char* what);

  std::unique_ptr<Node> node_;
  std::unique_ptr<FdServer> fdServer_;
  std::vector<std::unique_ptr<NewcomerServer>> awaited_;
  std::unique_ptr<Monitor> monitor_;
  Deadline fetchEnd_;
  bool left_ = false;
};

}  // namespace moe::bootstrap
