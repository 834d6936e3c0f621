// Goes on after a failure that nobody died of (decision 0122). Every rank ends its steps and comes, all take the same
// counts of operations, and each writes its own words. Routes are void, and operations that awaited moeComplete are
// cancelled.
#include <fmt/format.h>

#include <algorithm>

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
  CommRecovery(Comm& comm, std::chrono::milliseconds timeout)
      : comm_(comm), timeout_(timeout), end_(Deadline::after(timeout)) {}

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
    comm_.log_->write(moeLogInfo, "comm", "recovered after {:.1f} ms", milliseconds());
  }

 private:
  bootstrap::Bootstrap& group() { return *comm_.bootstrap_; }

  // Agrees with all ranks, and settles. False: another rank had given up in an earlier call, of which this rank had not
  // heard, so the ranks meet again.
  bool settled() {
    const Deadline news = Deadline::after(kNews);
    group().recover(comm_.errors_.result(), comm_.errors_.sentence());
    try {
      const EndedOperations ended = agreeOnCounts();
      inRound([&] { settleAll(ended); });
      return true;
    } catch (const AgreedError&) {
      throw;
    } catch (const Error&) {
      if (!group().othersGaveUp() || news.expired() || end_.expired()) throw;
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
    if (comm_.suspended_) throw Error(moeUnsupported, fmt::format("{}: {}", kCall, kSuspended));
    if (comm_.remote_) {
      throw Error(moeUnsupported,
                  fmt::format("{}: there are several domains, between which rows may still be on their way", kCall));
    }
  }

  struct Card {
    EndedOperations ended;
    int llHandles[kLlSetsMax];
  };

  EndedOperations agreeOnCounts() {
    Card mine{endedIn(comm_.room_), {}};
    std::copy_n(comm_.room_.llHandles, kLlSetsMax, mine.llHandles);
    const auto cards = group().allGather(asBytes(mine), kCall);
    std::vector<EndedOperations> all;
    const Card first = readCard<Card>(cards[0], 0);
    for (int rank = 0; rank < comm_.nranks(); ++rank) {
      const Card card = readCard<Card>(cards[static_cast<std::size_t>(rank)], rank);
      requireSameHandles(first, card, rank);
      all.push_back(card.ended);
    }
    return beyond(all);
  }
  // A new handle takes the set of slots with the fewest handles, so ranks with different handles would use different
  // sets. All ranks have the same cards, and fail alike.
  static void requireSameHandles(const Card& first, const Card& card, int rank) {
    for (int set = 0; set < kLlSetsMax; ++set) {
      if (card.llHandles[set] == first.llHandles[set]) continue;
      throw AgreedError(moeInvalidUsage, fmt::format("{}: rank 0 has {} LL handles of set {} and rank {} has {}: they "
                                                     "must make and destroy the same handles in the same order",
                                                     kCall, first.llHandles[set], set, rank, card.llHandles[set]));
    }
  }
  EndedOperations endedIn(const Room& room) {
    CommState state;
    static_assert(sizeof state % sizeof(std::uint64_t) == 0);
    comm_.backend_->readWords(reinterpret_cast<std::uint64_t*>(&state),
                              reinterpret_cast<const std::uint64_t*>(room.view.state), sizeof state / 8);
    return endedOf(state);
  }

  // No rank runs a step.
  void settleAll(const EndedOperations& ended) {
    settle(comm_.room_, ended);
    if (comm_.localRoom_) {
      const EndedOperations alone = endedIn(*comm_.localRoom_);
      settle(*comm_.localRoom_, beyond({&alone, 1}));
    }
    for (const Comm::Owned& owned : comm_.handles_) owned.voidRoute(owned.handle.get());
  }

  void settle(Room& room, const EndedOperations& ended) {
    const CommView& view = room.view;
    std::vector<Flag> words(lastingWords(view.at));
    SettledWords(words, view.at, view.nranks, room.shape.llSets, {}).write(ended);
    const CommState state = settledState(ended, {});
    comm_.backend_->copyToPrivate(room.base(), words.data(), words.size() * sizeof(Flag));
    comm_.backend_->copyToPrivate(view.state, &state, sizeof state);
  }

  // All ranks have settled. Peers may start steps at any time.
  void clearFailure() {
    if (comm_.watch_) comm_.watch_->goOn();
    for (Failure* failure : {comm_.room_.view.failure, comm_.localFailure()}) *failure = {};
    comm_.hasReaders_ = false;
    std::atomic_ref(comm_.orders()->abort).store(0, std::memory_order_release);
    comm_.stepFailureTaken_ = false;
    comm_.errors_.forget();
  }

  double milliseconds() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  }

  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Comm& comm_;
  std::chrono::milliseconds timeout_;
  Deadline end_;
};

void Comm::recover(std::int32_t timeoutMs) {
  try {
    requireTimeout(timeoutMs);
    CommRecovery(*this, std::chrono::milliseconds(timeoutMs)).run();
  } catch (const Error& error) {
    errors_.explain(error.what());
    throw;
  }
}

}  // namespace moe
