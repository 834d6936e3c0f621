// One rank's membership of a group of ranks: meeting them, small collectives while the communicator initialises,
// passing descriptors to ranks on the same host, and afterwards knowing who dies, fails or leaves. Sockets only. The
// communicator (src/comm) is the only user. How it works is in node.h (the tree), rendezvous_server.h and handshake.h.
//
// Sequence: join; any number of allGather, barrier, serveFd, fetchFdFrom; startMonitor; ...; leave. Except where it
// says otherwise, one thread at a time. A rank that leaves before all others are through their collectives makes these
// fail.
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
#include "bootstrap/group/company.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/group/host_identity.h"
#include "bootstrap/net/address.h"
#include "bootstrap/net/siphash.h"
#include "moecomm.h"

namespace moe::bootstrap {

struct Options {
  int nranks = 1;
  int rank = 0;
  std::chrono::milliseconds timeout{30000};  // of join, and of each collective
  std::string interfaceName;                 // empty: chosen
  int rendezvousRank = -1;                   // the rank that serves the unique id, if known: named when it is not there
  const Log* log = nullptr;                  // may be null; outlives the Bootstrap
};

class Node;
class Monitor;
class FdServer;

class Bootstrap {
 public:
  using Failure = bootstrap::Failure;

  // Returns when all ranks have joined. Throws Error: moeInvalidUsage (ranks do not fit together, wrong secret),
  // moeTimeout (naming the missing ranks), moeRemoteError (naming a dead rank), moeInvalidArgument, moeSystemError.
  static std::unique_ptr<Bootstrap> join(const moeUniqueId_t& id, const Options& options);
  ~Bootstrap();
  Bootstrap(const Bootstrap&) = delete;
  Bootstrap& operator=(const Bootstrap&) = delete;

  int rank() const;
  int nranks() const;

  // Collective, before startMonitor. Blob sizes may differ; at most 16 MiB each. The result has one blob per rank.
  // Throws as join does; after a failure all later collectives throw it again.
  std::vector<std::vector<std::uint8_t>> allGather(std::span<const std::uint8_t> mine);
  void barrier();

  // Between collectives: takes in what has come, without waiting, and throws what they would throw if a rank has failed
  // or left before `what` was done.
  void throwIfBroken(const char* what);

  // Offers a duplicate of `fd` to the other ranks on this host, until stopServingFd or startMonitor. It is served
  // inside this rank's own collective and fetchFdFrom calls. So: serveFd, allGather, fetchFdFrom each peer, barrier,
  // stop. A fetch ends before others, who wait in the next collective, would say that this rank does not come: three
  // quarters of the timeout after the last collective.
  void serveFd(int fd);
  Fd fetchFdFrom(int rank, Deadline deadline);
  void stopServingFd();

  // Starts this rank's one background thread. It calls, until leave() returns,
  //  - onFailure once for every rank that dies or announces a failure, what was noticed before first; and once with
  //    this rank's own, if it finds whose fault a late wait was (reportLateWait);
  //  - onTick every `tick`, if it is set; it must cost next to nothing.
  // Callbacks must not call leave or destroy the Bootstrap; what any thread may call is fine.
  // It watches the processes of this host among `processes`, those of all ranks, if that is not empty.
  void startMonitor(std::function<void(const Failure&)> onFailure, std::function<void()> onTick = {},
                    std::chrono::milliseconds tick = std::chrono::milliseconds(10),
                    const std::vector<HostIdentity>& processes = {});

  // Any thread, never blocks. Every other rank is told (onFailure, or its collective throws). Before startMonitor it is
  // sent by this rank's next collective call or by leave, and a collective that is running here throws it.
  void announceFailure(moeResult_t result, const std::string& sentence);

  // Before startMonitor, when this rank gives up: the others are told, unless they told this rank.
  void announceIfFirst(const Error& error);

  // Any thread, never blocks, after startMonitor. A wait of this rank has ended by its deadline; it was for rank
  // `awaited`, or, if that is this rank itself, for a part of it. The group is asked whose fault that is. Within
  // kVerdict (late_waits.h) onFailure is called with what is found, or has been called with a failure that came before;
  // who leaves waits for that. Every other rank is told.
  void reportLateWait(int awaited, moeResult_t result, const std::string& sentence);

  // Any thread, never blocks, after startMonitor. This rank does nothing for the others any more, what it has sent has
  // arrived, and it is going to leave. Every other rank is told.
  void announceLeaving() noexcept;

  bool hasLeft(int rank) const;    // any thread: the rank has said goodbye
  bool isLeaving(int rank) const;  // any thread: that, or it has announced that it is leaving

  // Waits for `company` (needs the monitor), says goodbye to all, for at most about a second, and ends the monitor.
  // Idempotent. Afterwards only the queries may be called.
  void leave(const Company& company = {}) noexcept;

  // A key that the ranks of this group share and nobody else knows, for one purpose of `rank`'s.
  Key keyFor(std::string_view purpose, int rank) const;

  // Where a rank listens: for tests and log lines.
  const std::vector<Address>& addressesOf(int rank) const;

 private:
  explicit Bootstrap(std::unique_ptr<Node> node);
  void requireCollectives(const char* what) const;
  std::vector<std::vector<std::uint8_t>> collect(std::span<const std::uint8_t> mine, const char* what);

  std::unique_ptr<Node> node_;
  std::unique_ptr<FdServer> fdServer_;
  std::unique_ptr<Monitor> monitor_;
  Deadline fetchEnd_;
  bool left_ = false;
};

}  // namespace moe::bootstrap
