// Goes on after a failure (decisions 0122 and 0123). Every living rank ends its steps and comes, all take the same
// counts of operations, and each writes its own words. Routes are void, and operations that awaited moeComplete are
// cancelled. Then newcomers are taken in, which wait for the places of lost ranks (decision 0125).
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "comm/communicator/comm.h"
#include "comm/communicator/domain_links.h"
#include "comm/communicator/newcomer.h"
#include "comm/communicator/rounds.h"
#include "comm/communicator/settlement.h"
#include "comm/communicator/window_memory.h"
#include "device/view/settled.h"

namespace moe {
namespace {

constexpr const char* kCall = "moeCommRecover";
// How long news of an earlier recovery may be on their way.
constexpr std::chrono::milliseconds kNews{250};

}  // namespace

class CommRecovery {
 public:
  CommRecovery(Comm& comm, const AllowedLosses& losses, std::chrono::milliseconds timeout)
      : comm_(comm),
        memory_(comm, *comm.bootstrap_),
        settlement_(comm),
        losses_(losses),
        timeout_(timeout),
        end_(Deadline::after(timeout)) {}

  // Returns whether the window has fresh memory.
  bool run() {
    requirePossible();
    endSteps();
    const MonitorHeld held(*comm_.bootstrap_, timeout_);
    try {
      while (!settled() || !admitted()) {
      }
    } catch (const AgreedError& error) {
      comm_.errors_.replace(error.result(), error.what());
      throw;
    } catch (...) {
      const Error error = currentErrorOf(comm_.rank());
      group().announceIfFirst(error);
      comm_.errors_.replace(error.result(), error.what());
      throw Error(error);
    }
    clearFailure();
    comm_.hearTransports();
    comm_.log_->write(moeLogInfo, "comm", "recovered after {:.1f} ms{}{}", milliseconds(), newText(), lossText());
    return memoryFresh_;
  }

 private:
  bootstrap::Bootstrap& group() { return *comm_.bootstrap_; }

  // Agrees with all ranks, and settles. False: another rank had given up in an earlier call, of which this rank had not
  // heard, or a rank was lost meanwhile, so the ranks meet again.
  bool settled() {
    const Deadline news = Deadline::after(kNews);
    for (const std::int32_t rank : losses_.evicted) {
      group().giveUp(rank, fmt::format("rank {} was given up by rank {} ({})", rank, comm_.rank(), kCall));
    }
    group().recover(comm_.errors_.result(), comm_.errors_.sentence(),
                    losses_.most > 0 ? bootstrap::Losses::accepted : bootstrap::Losses::refused);
    lost_ = group().lost();
    try {
      const Agreement agreed = agree();
      if (comm_.hasDomains()) DomainLinks(comm_, group(), timeout_).cut(kCall);
      if (!lost_.empty()) inRound([&] { requireGone(agreed.fresh); });
      if (agreed.fresh) takeFreshMemory();
      inRound([&] { settleAll(agreed.ended); });
      comm_.lost_ = lost_;
      if (comm_.hasDomains()) DomainLinks(comm_, group(), timeout_).connectAgain();
      newcomers_.clear();
      if (!lost_.empty()) newcomers_ = fitting(group().gatherNewcomers(kCall));
      return true;
    } catch (const AgreedError&) {
      throw;
    } catch (const Error&) {
      if (!maySettleAgain(news)) throw;
      return false;
    }
  }
  bool maySettleAgain(const Deadline& news) {
    const bool again = group().mayRecover() || (group().othersGaveUp() && !news.expired());
    return again && !end_.expired();
  }

  // Takes in the newcomers that wait. False: that has failed, or another rank was lost meanwhile. The ranks settle
  // again then, without newcomers unless these are ranks like the others by now.
  bool admitted() {
    if (newcomers_.empty()) return true;
    const Deadline news = Deadline::after(kNews);
    group().setTimeout(std::max(std::chrono::milliseconds(end_.leftMs()) / 2, std::chrono::milliseconds(1)));
    Admission admission(comm_, group(), kCall);
    try {
      takeIn(admission);
      return true;
    } catch (...) {
      const Error error = currentErrorOf(comm_.rank());
      group().setTimeout(timeout_);
      if (admission.settled() ? !maySettleAgain(news) : end_.expired()) throw Error(error);
      if (!admission.settled()) giveUpNewcomers(error);
      return false;
    }
  }
  void takeIn(Admission& admission) {
    std::vector<bootstrap::HostIdentity> processes;
    for (const bootstrap::Newcomer& newcomer : newcomers_) {
      Peer& peer = peerOf(newcomer.rank);
      peer.card = cardOf(newcomer).window;
      processes.push_back(peer.card.host);
    }
    group().takeIn(newcomers_, processes, comm_.groupTable().bytes(), kCall);
    lost_ = group().lost();
    admission.run([&] { mapNewcomers(); }, [&](const EndedOperations& ended) { settleWithNewcomers(ended); });
  }
  void mapNewcomers() {
    for (const bootstrap::Newcomer& newcomer : newcomers_) {
      memory_.rangeOf(newcomer.rank)->unmap();
      memory_.mapPeer(newcomer.rank, end_);
    }
  }
  // The words of handles are settled already.
  void settleWithNewcomers(const EndedOperations& ended) {
    settlement_.settle(comm_.room_, ended, lost_);
    for (const bootstrap::Newcomer& newcomer : newcomers_) {
      std::atomic_ref(comm_.room_.view.departed[newcomer.rank]).store(0, std::memory_order_release);
    }
    comm_.lost_ = lost_;
  }
  // They have stored to nobody's window, so nobody waits for their ends.
  void giveUpNewcomers(const Error& error) {
    for (const bootstrap::Newcomer& newcomer : newcomers_) {
      const std::string sentence =
          fmt::format("the process that came for the place of rank {} was given up by rank {}: {}", newcomer.rank,
                      comm_.rank(), error.what());
      group().refuse(newcomer, error.result(), sentence);
      group().giveUp(newcomer.rank, sentence);
      memory_.rangeOf(newcomer.rank)->mapScratch();
    }
    newcomers_.clear();
  }

  // Refuses newcomers that are threads of another rank's process. All ranks see the same.
  std::vector<bootstrap::Newcomer> fitting(std::vector<bootstrap::Newcomer> newcomers) {
    std::vector<bootstrap::Newcomer> fit;
    for (bootstrap::Newcomer& newcomer : newcomers) {
      const int other = sharesProcessWith(cardOf(newcomer).window.host, fit);
      if (other < 0) {
        fit.push_back(std::move(newcomer));
        continue;
      }
      group().refuse(
          newcomer, moeUnsupported,
          fmt::format("moeCommInit: rank {} takes the place of a lost rank, and must be a process of its own: "
                      "rank {} runs in the same one",
                      newcomer.rank, other));
    }
    return fit;
  }
  // -1: with none.
  int sharesProcessWith(const bootstrap::HostIdentity& host, const std::vector<bootstrap::Newcomer>& newcomers) const {
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      if (!comm_.bootstrap_->isLost(rank) && hostOf(rank).sameProcess(host)) return rank;
    }
    for (const bootstrap::Newcomer& newcomer : newcomers) {
      if (cardOf(newcomer).window.host.sameProcess(host)) return newcomer.rank;
    }
    return -1;
  }

  template <class Work>
  void inRound(Work work) {
    together(group(), work, kCall);
  }

  // No step of this rank runs afterwards. A rank that knows of no failure makes one, so that steps of others end too.
  void endSteps() {
    if (comm_.status() == moeSuccess) {
      comm_.fail(moeAborted, fmt::format("rank {}: {} was called", comm_.rank(), kCall), true);
    }
    comm_.errors_.awaitCulprit();
    std::atomic_ref(comm_.orders()->abort).store(1, std::memory_order_release);
    comm_.backend_->synchronize();
  }

  // What this says is the same on all ranks, so each refuses by itself, and nothing has changed.
  void requirePossible() const {
    requireInRange("lossesMax", losses_.most, comm_.nranks() - 1);
    requireInRange("evictedCount", static_cast<std::int32_t>(losses_.evicted.size()), losses_.most);
    for (std::size_t i = 0; i < losses_.evicted.size(); ++i) {
      const std::int32_t rank = losses_.evicted[i];
      requireInRange(fmt::format("evicted[{}]", i), rank, comm_.nranks() - 1);
      if (rank == comm_.rank()) {
        throw Error(moeInvalidArgument,
                    fmt::format("{}: recovery.evicted[{}] is {}, this rank itself", kCall, i, rank));
      }
    }
  }

  static void requireInRange(const std::string& field, std::int32_t value, std::int32_t most) {
    if (value >= 0 && value <= most) return;
    throw Error(moeInvalidArgument, fmt::format("{}: recovery.{} is {}, must be 0..{}", kCall, field, value, most));
  }

  struct Card {
    EndedOperations ended;
    int llHandles[kLlSetsMax];
    std::int32_t lossesMax;
    std::int32_t fresh;  // 1: windows need fresh memory
  };

  struct FirstCard {
    int rank;
    Card card;
  };

  struct Agreement {
    EndedOperations ended;
    bool fresh;
  };

  Agreement agree() {
    Card mine{settlement_.endedIn(comm_.room_), {}, losses_.most, lostMayStore() || !memory_.whole() ? 1 : 0};
    std::copy_n(comm_.room_.llHandles, kLlSetsMax, mine.llHandles);
    const auto cards = group().allGather(asBytes(mine), kCall);
    std::vector<EndedOperations> all;
    std::optional<FirstCard> first;
    bool fresh = false;
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      if (group().isLost(rank)) continue;
      const Card card = readCard<Card>(cards[static_cast<std::size_t>(rank)], rank);
      if (!first) first = {rank, card};
      requireSameHandles(*first, card, rank);
      requireFewLosses(card, rank);
      all.push_back(card.ended);
      fresh = fresh || card.fresh != 0;
    }
    return {beyond(all), fresh};
  }
  void requireFewLosses(const Card& card, int rank) const {
    if (static_cast<std::int32_t>(lost_.size()) <= card.lossesMax) return;
    throw AgreedError(moeRemoteError, fmt::format("{}: the group has lost {}, and recovery.lossesMax of rank {} is {}",
                                                  kCall, bootstrap::describeRanks(lost_), rank, card.lossesMax));
  }
  // A new handle takes the set of slots with the fewest handles, so ranks with different handles would use different
  // sets. All ranks have the same cards, and fail alike.
  static void requireSameHandles(const FirstCard& first, const Card& card, int rank) {
    for (int set = 0; set < kLlSetsMax; ++set) {
      const int count = first.card.llHandles[set];
      if (card.llHandles[set] == count) continue;
      throw AgreedError(moeInvalidUsage, fmt::format("{}: rank {} has {} LL handles of set {} and rank {} has {}: they "
                                                     "must make and destroy the same handles in the same order",
                                                     kCall, first.rank, count, set, rank, card.llHandles[set]));
    }
  }

  // The ranks of this domain that are lost since the latest recovery. Those of others cannot store to windows, since
  // their transport has been cut.
  std::vector<int> newlyLost() const {
    std::vector<int> ranks;
    std::set_difference(lost_.begin(), lost_.end(), comm_.lost_.begin(), comm_.lost_.end(), std::back_inserter(ranks));
    std::erase_if(ranks, [&](int rank) { return !peerOf(rank).inDomain; });
    return ranks;
  }
  bool isEvicted(int rank) const {
    return std::find(losses_.evicted.begin(), losses_.evicted.end(), rank) != losses_.evicted.end();
  }
  // Whether a lost rank may still store to this rank's window.
  bool lostMayStore() {
    const std::vector<int> ranks = newlyLost();
    return std::any_of(ranks.begin(), ranks.end(), [&](int rank) { return mayStore(rank); });
  }
  // A rank of another host may have lost only its connections. One of this host that was not evicted ends soon, and is
  // awaited.
  bool mayStore(int rank) {
    if (group().hasLeft(rank)) return false;
    const bootstrap::HostIdentity& own = hostOf(comm_.rank());
    if (!own.sameKernel(hostOf(rank))) return true;
    return isEvicted(rank) && !(bootstrap::canWatch(own, hostOf(rank)) && hasEnded(rank, Deadline::after({})));
  }
  bool hasEnded(int rank, Deadline deadline) const {
    return bootstrap::awaitEnd(hostOf(comm_.rank()), hostOf(rank), deadline);
  }

  // Whatever a lost rank has stored has landed when its process has ended. `fresh`: windows get other memory, so what
  // lost ranks store does not matter.
  void requireGone(bool fresh) {
    for (const int rank : newlyLost()) {
      if (hostOf(rank).sameProcess(hostOf(comm_.rank()))) {
        throw Error(moeUnsupported, fmt::format("{}: rank {} was a thread of rank {}'s process, which needs its window",
                                                kCall, rank, comm_.rank()));
      }
    }
    if (const std::string why = comm_.room_.window->whyFixed(); fresh && !why.empty()) {
      throw Error(moeUnsupported, fmt::format("{}: the window of rank {} {}", kCall, comm_.rank(), why));
    }
    for (const int rank : newlyLost()) {
      if (memory_.rangeOf(rank) == nullptr) {
        throw Error(moeUnsupported, fmt::format("{}: rank {} has mapped the window of rank {} by CUDA IPC, and that "
                                                "mapping has ended with its owner",
                                                kCall, comm_.rank(), rank));
      }
      if (!fresh && !group().hasLeft(rank) && !hasEnded(rank, end_)) {
        throw Error(moeTimeout, fmt::format("{}: rank {} is lost, but its process {} still runs and may store to the "
                                            "windows of others: end it",
                                            kCall, rank, hostOf(rank).processId));
      }
    }
  }
  Peer& peerOf(int rank) const { return comm_.peers_[static_cast<std::size_t>(rank)]; }
  const bootstrap::HostIdentity& hostOf(int rank) const { return peerOf(rank).card.host; }

  void takeFreshMemory() {
    try {
      inRound([&] { memory_.unmapPeers(); });
      inRound([&] {
        memory_.giveBack();
        memory_.takeAnew();
      });
      memory_.exchangeHandles(kCall);
      inRound([&] { memory_.mapPeers(end_); });
      memoryFresh_ = true;
    } catch (const AgreedError&) {
      memory_.giveUp();
      throw;
    }
  }

  // No rank runs a step.
  void settleAll(const EndedOperations& ended) {
    for (const int rank : newlyLost()) memory_.rangeOf(rank)->mapScratch();
    settlement_.settle(comm_.room_, ended, lost_);
    if (!lost_.empty()) settlement_.clearTold(comm_.room_);
    if (comm_.localRoom_) {
      const EndedOperations alone = settlement_.endedIn(*comm_.localRoom_);
      settlement_.settle(*comm_.localRoom_, beyond({&alone, 1}), {});
    }
    for (const Comm::Owned& owned : comm_.handles_) owned.voidRoute(owned.handle.get());
  }

  // All ranks have settled. Peers may start steps at any time.
  void clearFailure() {
    if (comm_.watch_) comm_.watch_->goOn();
    for (Failure* failure : {comm_.room_.view.failure, comm_.localFailure()}) *failure = {};
    comm_.hasReaders_ = false;
    comm_.lost_ = lost_;
    std::atomic_ref(comm_.orders()->abort).store(0, std::memory_order_release);
    comm_.stepFailureTaken_ = false;
    comm_.errors_.forget();
    if (comm_.suspended_) wake();
  }

  // A suspended communicator has fresh memory now, and the words of the recovery instead of those that it had kept.
  void wake() {
    comm_.keptWords_ = {};
    comm_.heap_->setAsleep(false);
    comm_.suspended_ = false;
    memoryFresh_ = true;
  }

  std::string newText() const {
    if (newcomers_.empty()) return "";
    std::vector<int> ranks;
    for (const bootstrap::Newcomer& newcomer : newcomers_) ranks.push_back(newcomer.rank);
    std::sort(ranks.begin(), ranks.end());
    return fmt::format("; new processes have the places of {}", bootstrap::describeRanks(ranks));
  }

  std::string lossText() const {
    if (lost_.empty()) return "";
    return fmt::format("; the group goes on without {}{}", bootstrap::describeRanks(lost_),
                       memoryFresh_ ? ", in fresh memory" : "");
  }

  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Comm& comm_;
  WindowMemory memory_;
  Settlement settlement_;
  AllowedLosses losses_;
  std::chrono::milliseconds timeout_;
  Deadline end_;
  std::vector<int> lost_;
  std::vector<bootstrap::Newcomer> newcomers_;
  bool memoryFresh_ = false;
};

bool Comm::recover(const AllowedLosses& losses, std::int32_t timeoutMs) {
  try {
    requireTimeout(timeoutMs);
    requireConnected(kCall);
    return CommRecovery(*this, losses, std::chrono::milliseconds(timeoutMs)).run();
  } catch (const Error& error) {
    errors_.explain(error.what());
    throw;
  }
}

}  // namespace moe
