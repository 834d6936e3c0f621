// A communicator: one rank's membership of a group, its window, the peers' windows, and what steps need to run.
// comm_init.cc makes it. The C functions of src/api and handles use it.
#pragma once

#include <unistd.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/alive.h"
#include "base/log.h"
#include "bootstrap/group/bootstrap.h"
#include "comm/communicator/error_state.h"
#include "comm/communicator/handle_card.h"
#include "comm/communicator/heap.h"
#include "comm/communicator/room.h"
#include "comm/config/config.h"
#include "comm/config/mode_limits.h"
#include "comm/recorder/clock_offset.h"
#include "comm/recorder/flight_recorder.h"
#include "comm/recorder/watch.h"
#include "transport/remote.h"

namespace moe {

// This rank's knowledge of a peer after init.
struct Peer {
  WindowCard card;
  PeerWindow window;
  bool inDomain = true;
};

// What a group may lose in a recovery.
struct AllowedLosses {
  std::int32_t most;                      // ranks
  std::span<const std::int32_t> evicted;  // that count as lost, though they may live
};

struct GroupTable;  // newcomer.h

// The mark spells "moecomm" and a letter.
class Comm : public Alive<0x6d6f65636f6d6d43> {
 public:
  // `rendezvousRank` serves the id; -1 if it is not known. `backend` NULL: the one that the configuration asks for.
  // With an id of replace(), this process takes the place of a lost rank.
  static std::unique_ptr<Comm> create(int nranks, int rank, const moeUniqueId_t& id, const Config& config,
                                      int rendezvousRank = -1, std::unique_ptr<Backend> backend = nullptr);
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  int rank() const { return room_.view.rank; }
  int nranks() const { return room_.view.nranks; }
  const Config& config() const { return config_; }
  // The thresholds of rank 0's tuning file, the same on all ranks.
  const ModeLimits& tunedLimits() const { return tunedLimits_; }
  const CommShape& shape() const { return room_.shape; }
  const WindowLayout& layout() const { return room_.view.at; }
  // With several domains only.
  const RemoteLayout& farLayout() const { return farLayout_; }
  const CommView& view() const { return room_.view; }
  Room& room() { return room_; }
  // The room of this rank alone, which is made for its first handle.
  Room& localRoom();
  const Log& log() const { return *log_; }
  const std::vector<Peer>& peers() const { return peers_; }
  // The moeTransport value in use towards a peer, also while suspended.
  int transportTo(int rank) const;
  Backend& backend() { return *backend_; }
  Allocator allocator() const { return {config_.allocate, config_.free, config_.allocateUser}; }
  ErrorState& errors() { return errors_; }
  FlightRecorder& recorder() { return *recorder_; }

  // True in a process that was forked from the communicator's. It lacks the communicator's threads, and locks may be
  // held there for ever.
  bool isForked() const noexcept { return ::getpid() != process_; }
  int process() const { return process_; }

  // The first failure so far, including those of steps in the background. Any thread.
  moeResult_t status() noexcept;
  void abort() noexcept;

  // How long waits for other ranks may take, here and in steps. Any thread.
  std::chrono::milliseconds timeout() const noexcept;
  void setTimeout(std::int32_t timeoutMs);

  // Gives the memory of all windows back, and takes fresh memory to the same addresses. Collective. They throw an
  // AgreedError (rounds.h) if nothing has changed. After any other failure the communicator has failed.
  void suspend();
  void resume();
  // Closes what ties a suspended communicator to other processes, and lets the ranks meet again with a new id.
  // Collective. A failure of reconnect() leaves it disconnected; the failures of disconnect() are those of suspend().
  void disconnect();
  void reconnect(const moeUniqueId_t& id);
  // Goes on after a failure, as far as `losses` allow it. Collective. The ranks have `timeoutMs` to come. Returns
  // whether the window has fresh memory. After a failure of it the communicator has failed with that one, and the call
  // may be repeated.
  bool recover(const AllowedLosses& losses, std::int32_t timeoutMs);
  // The ranks that the group goes on without, ascending.
  const std::vector<int>& lost() const { return lost_; }
  // The id with which a new process takes the number of a lost rank, in a recovery.
  moeUniqueId_t replace(int rank);
  // Throws moeInvalidUsage while the window has no memory; `call` is named.
  void requireAwake(const char* call) const;
  // Throws moeInvalidUsage between disconnect() and reconnect().
  void requireConnected(const char* call) const;

  // Writes the latest steps to `path`; NULL: to the file of the configured folder. Any thread.
  void dump(const char* path);

  void* allocateWindow(std::size_t bytes) { return heap_->take(bytes); }
  void freeWindow(void* memory) { heap_->giveBack(memory); }
  const std::shared_ptr<WindowHeap>& heap() const { return heap_; }
  // The window offset of `memory` if it lies in the heap; else -1. Throws unless all of it lies in one block that
  // allocateWindow has returned.
  std::int64_t windowOffset(const void* memory, std::uint64_t bytes, const char* name) const;

  // How many rows of `rowBytes` bytes fit at `memory`. In the heap that is the rest of its block. Elsewhere it is not
  // known, and the answer is kAnyRows.
  std::int64_t windowRoom(const void* memory, std::uint64_t rowBytes) const;

  // Notes that peers of the domain read this rank's rows in their own steps, and that no step here waits for the last
  // of those reads.
  void noteReaders() noexcept { hasReaders_ = true; }
  bool hasReaders() const { return hasReaders_; }

  // The number of the next handle, from 0 up. Handles of localOnly, which other ranks need not have, are numbered from
  // -1 down.
  int takeHandleNumber(bool localOnly) { return localOnly ? --localHandlesMade_ : handlesMade_++; }
  // Handles live until they are removed, and at most as long as the communicator, which does not know their type.
  template <class Handle>
  Handle* add(std::unique_ptr<Handle> handle) {
    Handle* added = handle.get();
    handles_.push_back({std::move(handle), [](void* owned) { static_cast<Handle*>(owned)->voidRoute(); },
                        [](void* owned) { return static_cast<Handle*>(owned)->card(); }});
    return added;
  }
  // In a process that has taken the place of a lost rank: the next handle must be like the next of the others', until
  // there are as many. Throws moeInvalidUsage.
  void requireExpected(const HandleCard& mine) const;
  // That handle; nothing: this process has all of them.
  std::optional<HandleCard> takeExpected();
  void remove(const void* handle);

 private:
  friend class CommInit;
  friend class CommParting;
  friend class CommSleep;
  friend class CommRecovery;
  friend class DomainLinks;
  friend class JointPart;
  friend class WindowMemory;
  struct Owned {
    std::shared_ptr<void> handle;
    void (*voidRoute)(void*);
    HandleCard (*card)(void*);
  };
  Comm() = default;

  void fail(moeResult_t result, const std::string& sentence, bool announce) noexcept;
  void transportFailed(moeResult_t result, const std::string& sentence) noexcept;
  void lookAtSteps() noexcept;
  const Failure* stepFailure() const noexcept;
  GroupTable groupTable() const;
  std::string recorded(const char* reason);
  void startWatch();
  void startMonitor();
  // `rendezvousRank` serves the id; -1 if it is not known.
  bootstrap::Options bootstrapOptions(int rendezvousRank) const;
  // Tells the backend how many ranks share its device.
  void countSharers();
  std::string fileName(const std::string& folder, const char* ending) const;
  void lookForLeavers() noexcept;
  bootstrap::Company readers() noexcept;
  void finishPuts() noexcept;
  // From now on reports of transports count.
  void hearTransports() noexcept;
  bool hasDomains() const { return room_.shape.domains() > 1; }
  // Operations of this rank that await moeComplete.
  int pendingOperations() const;
  // NULL until there is memory for it.
  WaitOrders* orders() const { return reinterpret_cast<WaitOrders*>(orders_.get()); }
  // The failure record of the local room's steps. It follows the record of the group's steps.
  Failure* localFailure() const { return reinterpret_cast<Failure*>(failure_.get()) + 1; }

  const pid_t process_ = ::getpid();

  // Declaration order is lifetime order. The bootstrap's monitor uses everything above it, and goes first.
  Config config_;
  ModeLimits tunedLimits_ = untuned();
  std::unique_ptr<Log> log_;
  ErrorState errors_;
  KeptBack transportReports_;
  std::unique_ptr<Watch> watch_;  // NULL: not watched. Transports may report failures to it until they are destroyed
  std::unique_ptr<Backend> backend_;
  Memory failure_, orders_, departed_;
  Memory far_;  // FarView, for steps; none: there is one domain
  RemoteLayout farLayout_{};
  Room room_;
  std::vector<Peer> peers_;
  std::unique_ptr<RemoteTransport> remote_;  // NULL: there is one domain, or the communicator is suspended
  bool leaves_ = false;                      // it is being destroyed
  std::shared_ptr<WindowHeap> heap_;
  std::unique_ptr<Room> localRoom_;
  std::vector<Owned> handles_;
  std::deque<HandleCard> expected_;  // handles of the others that this process, which came later, has not created yet
  bool hasReaders_ = false;
  std::atomic<bool> suspended_ = false;
  std::atomic<bool> disconnected_ = false;
  bootstrap::Key parting_{};  // the name of the latest disconnection, the same on all ranks
  std::vector<int> lost_;
  std::vector<Flag> keptWords_;  // of the window, while it has no memory: lastingWords()
  std::atomic<bool> stepFailureTaken_ = false;
  std::unique_ptr<FlightRecorder> recorder_;
  ClockOffset toRank0_;
  std::string job_;  // names the group in files, as it met at init
  int handlesMade_ = 0, localHandlesMade_ = 0;
  std::unique_ptr<bootstrap::Bootstrap> bootstrap_;  // NULL: disconnected
};

// Throws moeInvalidArgument unless a group may have this many ranks.
void requireRanks(int nranks);

// Throws moeInvalidArgument unless `timeoutMs` is a time in which ranks may be awaited.
void requireTimeout(std::int32_t timeoutMs);

// The shape that a configuration asks for, with domains of `domainSize` ranks.
CommShape shapeOf(int nranks, int domainSize, const Config& config);

// The shape of a communicator's local room.
CommShape localShape(CommShape shape);

// The number of ranks in a domain of this configuration. If it depends on the hosts, the result is nranks.
int domainSizeOf(int nranks, const Config& config);

// For the log of init (init_log.cc).

// Logs the version and the settings from the environment, with a warning for each unknown name in `names`.
void logEnvironment(const Log& log, const Config& config, std::span<const std::string> names);

// Warns if a group of many ranks reserves much memory because nobody said how many rows HT stages.
void warnOfStaging(const Log& log, const CommShape& shape, const Config& config);

// "1, 3-5 (shared memory), 6-7 (TCP)": the other ranks, by the transport that reaches each.
std::string describePeers(const Comm& comm);

}  // namespace moe
