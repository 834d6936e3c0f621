// Goes on after a failure (decisions 0122 and 0123). Every living rank ends its steps and comes, all take the same
// counts of operations, and each writes its own words. Routes are void, and operations that awaited moeComplete are
// cancelled.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "comm/communicator/comm.h"
#include "comm/communicator/rounds.h"
#include "device/view/settled.h"

namespace moe {
namespace {

constexpr const char* kCall = "moeCommRecover";
// How long news of an earlier recovery may be on their way.
constexpr std::chrono::milliseconds kNews{250};

}  // namespace

class CommRecovery {
 public:
  CommRecovery(Comm& comm, std::int32_t lossesMax, std::chrono::milliseconds timeout)
      : comm_(comm), lossesMax_(lossesMax), timeout_(timeout), end_(Deadline::after(timeout)) {}

  void run() {
    requirePossible();
    endSteps();
    const MonitorHeld held(*comm_.bootstrap_, timeout_);
    try {
      while (!settled()) {
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
    comm_.log_->write(moeLogInfo, "comm", "recovered after {:.1f} ms{}", milliseconds(), lossText());
  }

 private:
  bootstrap::Bootstrap& group() { return *comm_.bootstrap_; }

  // Agrees with all ranks, and settles. False: another rank had given up in an earlier call, of which this rank had not
  // heard, or a rank was lost meanwhile, so the ranks meet again.
  bool settled() {
    const Deadline news = Deadline::after(kNews);
    group().recover(comm_.errors_.result(), comm_.errors_.sentence(),
                    lossesMax_ > 0 ? bootstrap::Losses::accepted : bootstrap::Losses::refused);
    lost_ = group().lost();
    try {
      const EndedOperations ended = agreeOnCounts();
      if (!lost_.empty()) inRound([&] { requireEnded(); });
      inRound([&] { settleAll(ended); });
      return true;
    } catch (const AgreedError&) {
      throw;
    } catch (const Error&) {
      const bool again = group().mayRecover() || (group().othersGaveUp() && !news.expired());
      if (!again || end_.expired()) throw;
      return false;
    }
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
    if (lossesMax_ < 0 || lossesMax_ >= comm_.nranks()) {
      throw Error(moeInvalidArgument,
                  fmt::format("{}: recovery.lossesMax is {}, must be 0..{}", kCall, lossesMax_, comm_.nranks() - 1));
    }
    if (comm_.suspended_) throw Error(moeUnsupported, fmt::format("{}: {}", kCall, kSuspended));
    if (comm_.remote_) {
      throw Error(moeUnsupported,
                  fmt::format("{}: there are several domains, between which rows may still be on their way", kCall));
    }
  }

  struct Card {
    EndedOperations ended;
    int llHandles[kLlSetsMax];
    std::int32_t lossesMax;
  };

  struct FirstCard {
    int rank;
    Card card;
  };

  EndedOperations agreeOnCounts() {
    Card mine{endedIn(comm_.room_), {}, lossesMax_};
    std::copy_n(comm_.room_.llHandles, kLlSetsMax, mine.llHandles);
    const auto cards = group().allGather(asBytes(mine), kCall);
    std::vector<EndedOperations> all;
    std::optional<FirstCard> first;
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      if (group().isLost(rank)) continue;
      const Card card = readCard<Card>(cards[static_cast<std::size_t>(rank)], rank);
      if (!first) first = {rank, card};
      requireSameHandles(*first, card, rank);
      requireFewLosses(card, rank);
      all.push_back(card.ended);
    }
    return beyond(all);
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
  EndedOperations endedIn(const Room& room) {
    CommState state;
    static_assert(sizeof state % sizeof(std::uint64_t) == 0);
    comm_.backend_->readWords(reinterpret_cast<std::uint64_t*>(&state),
                              reinterpret_cast<const std::uint64_t*>(room.view.state), sizeof state / 8);
    return endedOf(state);
  }

  // Whatever a lost rank has stored has landed when its process has ended. Its window stays as it is mapped here.
  void requireEnded() {
    const bootstrap::HostIdentity& own = hostOf(comm_.rank());
    for (const int rank : lost_) {
      if (hostOf(rank).sameProcess(own)) {
        throw Error(moeUnsupported, fmt::format("{}: rank {} was a thread of rank {}'s process, which needs its window",
                                                kCall, rank, comm_.rank()));
      }
      if (comm_.peers_[static_cast<std::size_t>(rank)].window.range == nullptr) {
        throw Error(moeUnsupported, fmt::format("{}: rank {} has mapped the window of rank {} by CUDA IPC, and that "
                                                "mapping has ended with its owner",
                                                kCall, comm_.rank(), rank));
      }
      if (!group().hasLeft(rank) && !bootstrap::awaitEnd(own, hostOf(rank), end_)) {
        throw Error(moeTimeout, fmt::format("{}: rank {} is lost, but its process {} still runs and may store to the "
                                            "windows of others: end it",
                                            kCall, rank, hostOf(rank).processId));
      }
    }
  }
  const bootstrap::HostIdentity& hostOf(int rank) const {
    return comm_.peers_[static_cast<std::size_t>(rank)].card.host;
  }

  // No rank runs a step.
  void settleAll(const EndedOperations& ended) {
    settle(comm_.room_, ended, lost_);
    if (!lost_.empty()) clearTold(comm_.room_);
    if (comm_.localRoom_) {
      const EndedOperations alone = endedIn(*comm_.localRoom_);
      settle(*comm_.localRoom_, beyond({&alone, 1}), {});
    }
    for (const Comm::Owned& owned : comm_.handles_) owned.voidRoute(owned.handle.get());
  }

  void settle(Room& room, const EndedOperations& ended, LostList lost) {
    const CommView& view = room.view;
    std::vector<Flag> words(lastingWords(view.at));
    SettledWords(words, view.at, view.nranks, room.shape.llSets, lost).write(ended);
    const CommState state = settledState(ended, lost);
    comm_.backend_->copyToPrivate(room.base(), words.data(), words.size() * sizeof(Flag));
    comm_.backend_->copyToPrivate(view.state, &state, sizeof state);
  }

  void clearTold(Room& room) {
    const std::vector<std::uint8_t> zeros(std::size_t{1} << 20);
    for (const ToldArea& area : toldAreas(room.view.at, room.view.nranks, room.shape.llSets)) {
      for (std::uint64_t at = 0; at < area.bytes; at += zeros.size()) {
        const std::size_t bytes = std::min<std::size_t>(zeros.size(), area.bytes - at);
        comm_.backend_->copyToPrivate(room.base() + area.begin + at, zeros.data(), bytes);
      }
    }
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
  }

  std::string lossText() const {
    return lost_.empty() ? "" : fmt::format("; the group goes on without {}", bootstrap::describeRanks(lost_));
  }

  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Comm& comm_;
  std::int32_t lossesMax_;
  std::chrono::milliseconds timeout_;
  Deadline end_;
  std::vector<int> lost_;
};

void Comm::recover(std::int32_t lossesMax, std::int32_t timeoutMs) {
  try {
    requireTimeout(timeoutMs);
    CommRecovery(*this, lossesMax, std::chrono::milliseconds(timeoutMs)).run();
  } catch (const Error& error) {
    errors_.explain(error.what());
    throw;
  }
}

}  // namespace moe
