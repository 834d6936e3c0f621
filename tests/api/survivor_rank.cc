// One rank of a group that goes on without the ranks that it loses. survive_test.sh starts the ranks under moerun. All
// of them draw the same plan from the seed: in each turn some ranks are killed, leave or are stopped, at a random time,
// while all make steps. The others recover until they know of all losses, and make verified steps of all layouts. At
// the end a survivor prints "survivor R: ..." and exits with 0.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTimeoutMs = 20000, kStoppedMs = 1500;
constexpr std::size_t kMarks = 4096;

struct Options {
  std::string backend = "host", directory;
  std::uint64_t seed = 1;
  int rank = std::atoi(std::getenv("MOECOMM_RANK")), nranks = std::atoi(std::getenv("MOECOMM_NRANKS"));

  bool cuda() const { return backend == "cuda"; }
};

// A rank that the group loses in a turn: when, and how.
struct Loss {
  int rank;
  int delayUs;
  bool leaves;      // it destroys its communicator; otherwise it is killed
  bool recovering;  // it calls moeCommRecover before it is killed
  bool stops;       // it is stopped instead; the others kill it when it has not come to a recovery, or evict it
};
using Turn = std::vector<Loss>;

// One rank lives at the end.
std::vector<Turn> drawPlan(const Options& o) {
  Rng rng(o.seed);
  std::vector<int> living;
  for (int rank = 0; rank < o.nranks; ++rank) living.push_back(rank);
  std::vector<Turn> plan;
  while (living.size() > 1) {
    Turn turn;
    const int most = static_cast<int>(living.size()) - 1;
    for (int n = rng.coin() ? 1 : rng.between(1, most); n > 0; --n) {
      const auto at = living.begin() + rng.below(static_cast<int>(living.size()));
      turn.push_back({*at, rng.below(1 << rng.between(4, 15)), rng.oneIn(4), rng.oneIn(4), rng.oneIn(8)});
      living.erase(at);
    }
    plan.push_back(std::move(turn));
  }
  return plan;
}

class Survivor {
 public:
  Survivor(const Options& o, moeComm_t comm, Arena& arena)
      : o_(o),
        alone_(1),
        context_{o.rank, o.nranks, comm, arena, alone_},
        ht_(context_, shapeOf(moeModeHt)),
        ll_(context_, shapeOf(moeModeLl)) {
    for (int mode : {moeModeHt, moeModeLl}) {
      if (split_ && mode == moeModeHt) continue;
      for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
        steps_.push_back(std::make_unique<MoeStep>(context_, lossCase(o_.nranks, mode, layout)));
      }
    }
  }

  // False: something was wrong, or this rank is lost.
  bool run() {
    void* memory = nullptr;
    MOE_EXPECT_OK(moeMemAlloc(context_.comm, kMarks, &memory), context_);
    marks_ = static_cast<std::uint8_t*>(memory);
    keepsMemory(true);
    std::ofstream(fmt::format("{}/process{}", o_.directory, o_.rank)) << ::getpid();
    int turns = 0;
    for (const Turn& turn : drawPlan(o_)) {
      sleeps_ = (o_.seed + static_cast<std::uint64_t>(turns)) % 3 == 0;
      stopped_.clear();
      stoppedTries_ = 0;
      for (const Loss& loss : turn) {
        if (loss.stops && !loss.leaves) stopped_.push_back(loss.rank);
      }
      everStopped_ += static_cast<int>(stopped_.size());
      MOE_EXPECT_OK(moeCommSetTimeout(context_.comm, stopped_.empty() ? kTimeoutMs : kStoppedMs), context_);
      if (!meet(turns++)) return fail("somebody does not come");
      for (const Loss& loss : turn) {
        planned_.push_back(loss.rank);
        if (!loss.leaves && !loss.stops) killed_.push_back(loss.rank);
      }
      const auto own = std::find_if(turn.begin(), turn.end(), [&](const Loss& loss) { return loss.rank == o_.rank; });
      if (own != turn.end()) return endLater(*own), false;
      if (!loseAll()) return false;
      MOE_EXPECT_OK(moeCommSetTimeout(context_.comm, kTimeoutMs), context_);
      for (int i = 0; i < 2; ++i) {
        for (const auto& step : steps_) wholeStep(*step, ++made_);
        if (i == 0 && turns % 2 == 0 && !sleepAndWake()) return false;
      }
      const int mode = turns % 2 == 0 && !split_ ? moeModeHt : moeModeLl;
      MoeStep fresh(context_, lossCase(o_.nranks, mode, turns % 4));
      wholeStep(fresh, ++made_);
      if (::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) return fail("a step is wrong");
    }
    return true;
  }
  std::string text() const {
    return fmt::format("{} recoveries, {} with fresh memory, the longest in {:.1f} ms, {} steps, lost {}", recoveries_,
                       evictions_, longestMs_, made_, fmt::join(context_.lost, ", "));
  }
  const std::string& problem() const { return problem_; }

 private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  // Returns when all living ranks have come here, so that nobody checks a step any more. False: some do not come.
  bool meet(int turn) const {
    const auto nameOf = [&](int rank) { return fmt::format("{}/turn{}-{}", o_.directory, turn, rank); };
    std::ofstream(nameOf(o_.rank)).put(' ');
    const auto end = Clock::now() + std::chrono::milliseconds(kTimeoutMs);
    for (int rank = 0; rank < o_.nranks; ++rank) {
      if (std::find(planned_.begin(), planned_.end(), rank) != planned_.end()) continue;
      while (!std::filesystem::exists(nameOf(rank))) {
        if (Clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    return true;
  }

  moeHandleConfig_t shapeOf(int mode) const {
    moeHandleConfig_t shape = handleOf(mode, moeLayoutFlat);
    shape.experts = 2 * o_.nranks;
    return shape;
  }

  static void wholeStep(MoeStep& step, int iteration) {
    step.begin(iteration);
    step.finish();
  }

  // Steps until one fails, or until the end. Their results do not matter.
  moeResult_t stepsUntilFailure(Clock::time_point end = Clock::time_point::max()) {
    moeResult_t result = moeSuccess;
    for (int i = 0; result == moeSuccess && Clock::now() < end; ++i) {
      Calls& calls = i % 2 == 0 && !split_ ? ht_ : ll_;
      if (i / 2 % 2 == 0) {
        result = calls.route();
        if (result == moeSuccess) result = calls.dispatch(calls.dispatchArgs());
      } else {
        result = calls.routeDispatch(calls.dispatchArgs());
      }
      if (result == moeSuccess) result = calls.combine(calls.combineArgs());
      context_.arena.synchronize();
      if (result == moeSuccess && moeCommGetAsyncError(context_.comm, &result) != moeSuccess) return moeInternalError;
    }
    return result;
  }

  // Falls asleep and wakes until that fails, or until the end.
  moeResult_t cyclesUntilFailure(Clock::time_point end) {
    moeResult_t result = moeSuccess;
    while (result == moeSuccess && Clock::now() < end) {
      result = moeCommSuspend(context_.comm);
      if (result != moeSuccess) break;
      zeroed_ = true;
      do {
        result = moeCommResume(context_.comm);
      } while (result == moeSystemError);  // a rank has died whose memory was to be mapped; all are still asleep
    }
    return result;
  }
  moeResult_t untilFailure(Clock::time_point end = Clock::time_point::max()) {
    return sleeps_ ? cyclesUntilFailure(end) : stepsUntilFailure(end);
  }

  // Without the ranks that are lost.
  bool sleepAndWake() {
    MOE_EXPECT_OK(moeCommSuspend(context_.comm), context_);
    MOE_EXPECT_OK(moeCommResume(context_.comm), context_);
    return keepsMemory(true) || fail("window memory is not zero after a sleep");
  }

  void endLater(const Loss& own) {
    std::thread ending([own] {
      std::this_thread::sleep_for(std::chrono::microseconds(own.delayUs));
      if (!own.leaves) ::kill(::getpid(), own.stops ? SIGSTOP : SIGKILL);
    });
    if (own.recovering && !own.leaves) {
      moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
      recovery.lossesMax = o_.nranks - 1;
      moeCommRecover(context_.comm, &recovery, kTimeoutMs);
    }
    const auto end = Clock::now() + std::chrono::microseconds(own.delayUs);
    untilFailure(own.leaves ? end : Clock::time_point::max());
    ending.join();  // when this rank runs again, if it has been stopped
    if (own.stops && !own.leaves) tell();
  }

  // Window memory keeps its contents, unless it is fresh.
  bool keepsMemory(bool fresh) {
    const std::vector<std::uint8_t> marks(kMarks, 0x5A), zeros(kMarks);
    const bool good = context_.arena.get(marks_, kMarks) == (fresh ? zeros : marks);
    context_.arena.upload(marks_, marks.data(), kMarks);
    return good;
  }

  // A killed rank of another host (support/api/rack.cc) may run on, as far as this one can know.
  bool mayStore(const std::vector<std::int32_t>& lost) const {
    const char* rack = std::getenv("MOECOMM_RACK");
    const int ranksPerHost = rack != nullptr ? std::atoi(rack) : o_.nranks;
    return std::any_of(lost.begin(), lost.end(), [&](int rank) {
      const bool isNew = std::find(context_.lost.begin(), context_.lost.end(), rank) == context_.lost.end();
      const bool killed = std::find(killed_.begin(), killed_.end(), rank) != killed_.end();
      return isNew && killed && rank / ranksPerHost != o_.rank / ranksPerHost;
    });
  }

  // Each survivor sends the signal, which hurts nobody.
  void signalStopped(int signal) const {
    for (const int rank : stopped_) {
      pid_t process = 0;
      std::ifstream(fmt::format("{}/process{}", o_.directory, rank)) >> process;
      if (process > 0) ::kill(process, signal);
    }
  }
  // Evicted ranks go on where they were, and store to what were the others' windows.
  void wakeStopped() {
    signalStopped(SIGCONT);
    ++evictions_;
  }
  bool evicts() const { return !stopped_.empty() && o_.seed % 2 == 0; }

  // An evicted rank that would recover learns that the others go on without it, or waits for them in vain. If all ranks
  // that were not stopped have ended meanwhile, it may go on without them.
  void tell() {
    moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
    recovery.lossesMax = o_.nranks - 1;
    const moeResult_t result = moeCommRecover(context_.comm, &recovery, kTimeoutMs);
    const bool without = result == moeSuccess && recovery.losses >= o_.nranks - everStopped_;
    if (result != moeRemoteError && result != moeTimeout && !without) problem_ = "goes on with the others";
    std::printf("told %d: %s\n", o_.rank, context_.error());
    std::fflush(stdout);
  }

  // Recovers until the group goes on without all ranks that are planned to be lost so far.
  bool loseAll() {
    std::sort(planned_.begin(), planned_.end());
    while (context_.lost != planned_) {
      const moeResult_t error = untilFailure();
      if (error != moeRemoteError && error != moeTimeout && error != moeAborted) {
        return fail(fmt::format("the steps failed with {}: {}", static_cast<int>(error), context_.error()));
      }
      const auto begin = Clock::now();
      std::vector<std::int32_t> lost(static_cast<std::size_t>(o_.nranks));
      moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
      recovery.lossesMax = o_.nranks - 1;
      recovery.lost = lost.data();
      if (evicts()) {
        recovery.evicted = stopped_.data();
        recovery.evictedCount = static_cast<std::int32_t>(stopped_.size());
      }
      const moeResult_t result = moeCommRecover(context_.comm, &recovery, stopped_.empty() ? kTimeoutMs : kStoppedMs);
      if (result != moeSuccess && evicts() && says(context_.error(), "but its process"))
        return fail(context_.error());  // it need not end
      // A rank that is stopped has not come, or another survivor has just killed it.
      if ((result == moeTimeout || result == moeRemoteError) && !stopped_.empty() && ++stoppedTries_ < 9) {
        if (!evicts()) signalStopped(SIGKILL);
        continue;
      }
      if (result == moeSystemError && ++mapTries_ < 9) continue;  // the same, within a recovery
      if (result != moeSuccess) return fail(context_.error());
      longestMs_ = std::max(longestMs_, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
      ++recoveries_;
      lost.resize(static_cast<std::size_t>(recovery.losses));
      if (recovery.memoryFresh == 0 && mayStore(lost))
        return fail("windows have the memory to which a lost rank stores");
      context_.lost.assign(lost.begin(), lost.end());
      if (lostPeers(context_.comm, o_.nranks) != context_.lost) return fail("moeCommGetPeerInfo has other lost ranks");
      if (recovery.memoryFresh != 0 || (split_ && evicts())) wakeStopped();
      const bool slept = std::exchange(zeroed_, false);
      if (!keepsMemory(recovery.memoryFresh != 0 || slept)) return fail("window memory has other contents");
      const bool planned = std::includes(planned_.begin(), planned_.end(), lost.begin(), lost.end());
      if (!planned) return fail(fmt::format("lost {}, planned {}", fmt::join(lost, ", "), fmt::join(planned_, ", ")));
    }
    return true;
  }

  const Options& o_;
  std::barrier<> alone_;
  RankContext context_;
  const bool split_ = context_.domainSize() != o_.nranks;  // several domains, where HT needs all ranks
  Calls ht_, ll_;
  std::uint8_t* marks_ = nullptr;
  std::vector<std::unique_ptr<MoeStep>> steps_;
  std::vector<int> planned_, killed_;
  std::vector<std::int32_t> stopped_;
  bool sleeps_ = false;  // in this turn ranks are lost while all fall asleep and wake
  bool zeroed_ = false;  // they have slept since the last recovery
  int recoveries_ = 0, made_ = 0, stoppedTries_ = 0, mapTries_ = 0, evictions_ = 0, everStopped_ = 0;
  double longestMs_ = 0;
  std::string problem_;
};

moeConfig_t configOf(const Options& o) {
  moeConfig_t config = testConfig(o.cuda() ? moeBackendCuda : moeBackendHost);
  config.timeoutMs = kTimeoutMs;
  if (o.cuda()) config.device = o.rank % cudaDeviceCount();
  return config;
}

int run(const Options& o) {
  const auto arena = o.cuda() ? makeCudaArena(o.rank % cudaDeviceCount()) : makeHostArena();
  moeComm_t comm = nullptr;
  const moeConfig_t config = configOf(o);
  if (moeCommInitFromEnv(&comm, &config) != moeSuccess) {
    std::printf("FAILED %d: %s\n", o.rank, moeGetLastError(nullptr));
    return 1;
  }
  std::optional<Survivor> survivor(std::in_place, o, comm, *arena);
  const bool survives = survivor->run();
  const std::string problem = survivor->problem(), text = survivor->text();
  survivor.reset();
  const bool left = moeCommDestroy(comm) == moeSuccess;
  if (!survives && problem.empty()) return 0;  // it has left, as planned
  const bool good = survives && left;
  std::printf("%s %d: %s %s\n", good ? "survivor" : "FAILED", o.rank, problem.c_str(), text.c_str());
  std::fflush(stdout);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moe::test::Options options;
  CLI::App app("One rank of a group that goes on without the ranks that it loses");
  app.add_option("--backend", options.backend)->check(CLI::IsMember({"host", "cuda"}));
  app.add_option("--directory", options.directory)->required();
  app.add_option("--seed", options.seed);
  CLI11_PARSE(app, argc, argv);
  return moe::test::run(options);
}
