// A group whose ranks are killed and replaced by new processes, round after round (decision 0125). Without --rank this
// program starts the ranks as processes of itself, and a new one for each that was killed. With --rank it is one of
// them. All draw the same plan from the seed. In each round some ranks are killed while all make steps. The others go
// on without them, with verified steps, issue ids, and take the new processes in. Then the first steps of all ranks are
// verified. In some rounds a new process is killed before or while it is taken in, or has wrong arguments first. In
// some the ranks are stopped and evicted instead. They run again when others have their numbers, and must learn that.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "support/api/board.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kTimeoutMs = 20000, kStoppedMs = 1500, kFreshSteps = 3;
constexpr milliseconds kRoundMax{60000};

struct Options {
  std::string program, directory;
  std::uint64_t seed = 1;
  int nranks = 4, rounds = 4;
  int rank = -1;       // -1: starts the ranks
  int round = -1;      // of a new process: the round in which its predecessor was killed
  bool fails = false;  // it is killed before or when it has been taken in
  int failsAfterUs = 0;
};

struct Round {
  std::vector<int> victims;  // ascending
  int delayUs;
  bool early;  // ids are issued before the recovery that goes on without the victims
  bool fails;  // the first new process of each victim is killed
  int failsAfterUs;
  bool stops;       // the victims are stopped instead
  bool wrongFirst;  // new processes have wrong arguments first
};

std::vector<Round> drawPlan(const Options& o) {
  Rng rng(o.seed);
  std::vector<Round> plan;
  for (int k = 0; k < o.rounds; ++k) {
    std::vector<int> ranks;
    for (int rank = 0; rank < o.nranks; ++rank) ranks.push_back(rank);
    Round round{{}, rng.below(1 << rng.between(4, 14)), rng.oneIn(3), rng.oneIn(4), 0, false, false};
    for (int n = rng.oneIn(4) ? rng.between(1, o.nranks - 1) : 1; n > 0; --n) {
      const auto at = ranks.begin() + rng.below(static_cast<int>(ranks.size()));
      round.victims.push_back(*at);
      ranks.erase(at);
    }
    round.stops = !round.early && !round.fails && rng.oneIn(6);
    round.wrongFirst = k % 4 == 0 && !round.fails;
    std::sort(round.victims.begin(), round.victims.end());
    round.failsAfterUs = rng.below(1 << rng.between(8, 17));
    plan.push_back(std::move(round));
  }
  return plan;
}

bool isAmong(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

moeConfig_t configOf() {
  moeConfig_t config = testConfig(moeBackendHost);
  config.timeoutMs = kTimeoutMs;
  config.logLevel = moeLogNone;
  return config;
}

class Member {
 public:
  Member(const Options& o, moeComm_t comm, Arena& arena)
      : o_(o), board_(o.directory), plan_(drawPlan(o)), alone_(1), context_{o.rank, o.nranks, comm, arena, alone_} {}

  bool run() {
    board_.put(fmt::format("process{}", o_.rank), ::getpid());
    context_.lost = lostPeers(context_.comm, o_.nranks);  // ranks that were lost before this process came
    if (o_.round < 0) {
      createHandles();
      if (!expectRefusals() || !verify(0)) return false;
    } else if (!finish(o_.round)) {
      return false;
    }
    for (int k = o_.round + 1; k < o_.rounds; ++k) {
      const Round& round = plan_[static_cast<std::size_t>(k)];
      if (round.stops) setTimeout(kStoppedMs);
      if (!meet(fmt::format("begin{}", k))) return fail(fmt::format("round {} does not begin", k));
      if (isAmong(round.victims, o_.rank)) return endIn(round);
      if (!lose(k, round) || !finish(k)) return false;
    }
    return meet("end") || fail("somebody does not come to the end");
  }
  const std::string& problem() const { return problem_; }
  bool evicted() const { return evicted_; }
  std::string text() {
    if (evicted_) return fmt::format("told: {}", context_.error());
    return fmt::format("{} recoveries, the longest in {:.1f} ms, {} verified steps", recoveries_, longestMs_, made_);
  }

 private:
  bool fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
    return false;
  }

  moeHandleConfig_t shapeOf(int mode) const {
    moeHandleConfig_t shape = handleOf(mode, moeLayoutFlat);
    shape.experts = 2 * o_.nranks;
    return shape;
  }
  // A new process creates the handles that the others have.
  void createHandles() {
    if (o_.round >= 0 && plan_[static_cast<std::size_t>(o_.round)].wrongFirst) refuseOtherHandle();
    ht_.emplace(context_, shapeOf(moeModeHt));
    ll_.emplace(context_, shapeOf(moeModeLl));
    for (int mode : {moeModeHt, moeModeLl}) {
      for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
        steps_.push_back(std::make_unique<MoeStep>(context_, lossCase(o_.nranks, mode, layout)));
      }
    }
    for (int k = std::max(0, o_.round - kFreshSteps); k < o_.round; ++k) addFresh(k);
  }
  // Handles that live for a few rounds, so that the sets of LL slots depend on the history.
  void addFresh(int k) {
    fresh_.push_back(
        std::make_unique<MoeStep>(context_, lossCase(o_.nranks, k % 3 == 0 ? moeModeHt : moeModeLl, k % 4)));
    if (fresh_.size() > kFreshSteps) fresh_.pop_front();
  }

  // Every step begins with iteration 0, in which placements are set.
  bool verify(int iterations) {
    for (int i = 0; i <= iterations; ++i) {
      for (const auto* steps : {&steps_}) {
        for (const auto& step : *steps) wholeStep(*step, i);
      }
      for (const auto& step : fresh_) wholeStep(*step, i);
    }
    if (::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed()) return fail("a step is wrong");
    return true;
  }
  void wholeStep(MoeStep& step, int iteration) {
    step.begin(iteration);
    step.finish();
    ++made_;
  }

  void setTimeout(int timeoutMs) { MOE_EXPECT_OK(moeCommSetTimeout(context_.comm, timeoutMs), context_); }

  // Nobody is in a step afterwards.
  bool meet(const std::string& name, const std::vector<int>& without = {}) {
    board_.put(fmt::format("{}-{}", name, o_.rank));
    for (const auto end = Clock::now() + kRoundMax; Clock::now() < end;) {
      if (allHave(name, without)) return true;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
  }
  bool allHave(const std::string& name, const std::vector<int>& without = {}) const {
    for (int rank = 0; rank < o_.nranks; ++rank) {
      if (!isAmong(without, rank) && !board_.has(fmt::format("{}-{}", name, rank))) return false;
    }
    return true;
  }

  // Steps until one fails. Their results do not matter.
  void stepsUntilFailure() {
    moeResult_t result = moeSuccess;
    for (int i = 0; result == moeSuccess; ++i) {
      Calls& calls = i % 2 == 0 ? *ht_ : *ll_;
      result = calls.route();
      if (result == moeSuccess) result = calls.dispatch(calls.dispatchArgs());
      if (result == moeSuccess) result = calls.combine(calls.combineArgs());
      if (result == moeSuccess) moeCommGetAsyncError(context_.comm, &result);
    }
  }
  // A rank that was stopped goes on when another process has its number.
  bool endIn(const Round& round) {
    std::thread ending([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round.delayUs));
      ::kill(::getpid(), round.stops ? SIGSTOP : SIGKILL);
    });
    stepsUntilFailure();
    ending.join();
    while (!round.stops) ::pause();
    moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
    recovery.lossesMax = o_.nranks - 1;
    const moeResult_t result = moeCommRecover(context_.comm, &recovery, kStoppedMs);
    evicted_ = true;
    if (result == moeRemoteError || result == moeTimeout) return true;
    // Those that were evicted together may go on together when nobody is left who could tell them.
    const int others = o_.nranks - static_cast<int>(round.victims.size());
    if (result == moeSuccess && recovery.losses >= others) return true;
    return fail(fmt::format("an evicted rank goes on: result {}, {} losses, {}", static_cast<int>(result),
                            recovery.losses, context_.error()));
  }

  bool recover(const std::vector<int>& evicted = {}) {
    const auto begin = Clock::now();
    std::vector<std::int32_t> lost(static_cast<std::size_t>(o_.nranks));
    moeRecovery_t recovery = MOE_RECOVERY_INITIALIZER;
    recovery.lossesMax = o_.nranks - 1;
    recovery.lost = lost.data();
    recovery.evicted = evicted.data();
    recovery.evictedCount = static_cast<std::int32_t>(evicted.size());
    if (moeCommRecover(context_.comm, &recovery, kTimeoutMs) != moeSuccess)
      return fail(fmt::format("cannot recover: {}", context_.error()));
    longestMs_ = std::max(longestMs_, std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
    ++recoveries_;
    lost.resize(static_cast<std::size_t>(recovery.losses));
    context_.lost.assign(lost.begin(), lost.end());
    if (lostPeers(context_.comm, o_.nranks) != context_.lost) return fail("moeCommGetPeerInfo has other lost ranks");
    return true;
  }

  // Goes on without the victims, and issues ids for new processes.
  bool lose(int k, const Round& round) {
    stepsUntilFailure();
    const std::vector<int>& victims = round.victims;
    if (round.early) issue(k, victims, true);
    const auto end = Clock::now() + kRoundMax;
    bool whole = false;
    while (context_.lost != victims && !whole) {
      if (Clock::now() > end || !recover(round.stops ? victims : std::vector<int>()))
        return fail(fmt::format("lost only {}", fmt::join(context_.lost, ", ")));
      if (!std::includes(victims.begin(), victims.end(), context_.lost.begin(), context_.lost.end()))
        return fail(fmt::format("lost {}, planned {}", fmt::join(context_.lost, ", "), fmt::join(victims, ", ")));
      whole = round.early;  // some may be back already
    }
    if (round.stops) {
      setTimeout(kTimeoutMs);
      processes_ = processesOf(victims);
    }
    if (!round.early && (!verify(1) || !meet(fmt::format("without{}", k), victims)))
      return fail("no step without them");
    issue(k, victims, false);
    return true;
  }
  std::vector<int> processesOf(const std::vector<int>& ranks) const {
    std::vector<int> processes;
    for (const int rank : ranks) processes.push_back(board_.number(fmt::format("process{}", rank)));
    return processes;
  }
  // By the lowest survivor. `early`: it may not know of all deaths. `again`: the number was taken meanwhile.
  void issue(int k, const std::vector<int>& victims, bool early, bool again = false) {
    int lowest = 0;
    const std::vector<int>& all = plan_[static_cast<std::size_t>(k)].victims;
    while (isAmong(all, lowest)) ++lowest;
    if (lowest != o_.rank) return;
    for (const int victim : victims) {
      const std::string name = fmt::format("id{}-{}", k, victim);
      if (board_.has(name) && !again) continue;
      moeUniqueId_t id;
      const moeResult_t result = moeCommReplace(context_.comm, victim, &id);
      if (result == moeSuccess) board_.put(name, &id, sizeof id);
      const bool expected = result == moeSuccess || (early && result == moeInvalidUsage);
      if (!expected) fail(fmt::format("no id: {}", context_.error()));
    }
  }

  // Takes new processes in until nobody is lost, and verifies steps of all. A new process begins here.
  bool finish(int k) {
    const std::string name = fmt::format("whole{}", k);
    const auto end = Clock::now() + kRoundMax;
    bool told = false;
    while (!told || !allHave(name)) {
      if (!problem_.empty()) return false;
      if (Clock::now() > end) return fail(fmt::format("round {}: lost {}", k, fmt::join(context_.lost, ", ")));
      moeResult_t error = moeSuccess;
      if (moeCommGetAsyncError(context_.comm, &error) != moeSuccess) return fail("no error");
      std::this_thread::sleep_for(milliseconds(1));
      if (error != moeSuccess || !context_.lost.empty()) {
        const std::vector<int> before = context_.lost;
        if (!recover()) return false;
        // A new process was killed when it had the number, which has used up its id.
        std::vector<int> again;
        std::set_difference(context_.lost.begin(), context_.lost.end(), before.begin(), before.end(),
                            std::back_inserter(again));
        issue(k, again, false, true);
        continue;
      }
      if (!told) board_.put(fmt::format("{}-{}", name, o_.rank));
      told = true;
    }
    if (!ht_) createHandles();
    for (const int process : std::exchange(processes_, {})) ::kill(process, SIGCONT);
    if (!verify(2)) return fail(fmt::format("round {}", k));
    addFresh(k);
    wholeStep(*fresh_.back(), 0);
    return true;
  }

  bool expectRefusals() {
    moeUniqueId_t id;
    const auto refused = [&](int rank, moeUniqueId_t* to, moeResult_t result, const std::string& sentence) {
      if (moeCommReplace(context_.comm, rank, to) != result || !says(context_.error(), sentence))
        fail(fmt::format("not refused: {}, but {}", sentence, context_.error()));
    };
    refused(-1, &id, moeInvalidArgument, fmt::format("moeCommReplace: rank is -1, must be 0..{}", o_.nranks - 1));
    refused(o_.nranks, &id, moeInvalidArgument, fmt::format("moeCommReplace: rank is {}, must be 0..", o_.nranks));
    refused(o_.rank, &id, moeInvalidArgument, fmt::format("moeCommReplace: rank is {}, this rank itself", o_.rank));
    const int other = (o_.rank + 1) % o_.nranks;
    refused(other, &id, moeInvalidUsage, fmt::format("moeCommReplace: rank {} has neither died nor left", other));
    refused(other, nullptr, moeInvalidArgument, "id is NULL");
    return problem_.empty();
  }
  void refuseOtherHandle() {
    moeHandleConfig_t other = shapeOf(moeModeHt);
    other.experts += o_.nranks;
    moeHandle_t handle = nullptr;
    const moeResult_t result = moeHandleCreate(&handle, context_.comm, &other);
    const std::string sentence = fmt::format(
        "moeHandleCreate: config.experts is {}, but the next handle of the other "
        "ranks, number 0, has {}",
        other.experts, 2 * o_.nranks);
    if (result != moeInvalidUsage || !says(context_.error(), sentence))
      fail(fmt::format("another handle is not refused: {}", context_.error()));
  }

  const Options& o_;
  Board board_;
  std::vector<Round> plan_;
  std::barrier<> alone_;
  RankContext context_;
  std::optional<Calls> ht_, ll_;
  std::vector<std::unique_ptr<MoeStep>> steps_;
  std::deque<std::unique_ptr<MoeStep>> fresh_;
  std::vector<int> processes_;  // that are stopped
  int recoveries_ = 0, made_ = 0;
  bool evicted_ = false;
  double longestMs_ = 0;
  std::string problem_;
};

// ---- A process of the group ----

// Arguments with which the sponsor refuses a new process, without a word to the others. Empty: it did.
std::string wrongAttempts(const Options& o, const moeUniqueId_t& id) {
  std::string problem;
  const auto refused = [&](int nranks, int rank, const moeConfig_t& config, const std::string& sentence) {
    moeComm_t comm = nullptr;
    const moeResult_t result = moeCommInit(&comm, nranks, rank, &id, &config);
    if (result == moeInvalidUsage && says(moeGetLastError(nullptr), sentence)) return;
    problem = fmt::format("not refused: {}, but {}: {}", sentence, static_cast<int>(result), moeGetLastError(nullptr));
  };
  moeConfig_t config = configOf();
  const int other = (o.rank + 1) % o.nranks;
  refused(o.nranks, other, config, fmt::format("rank is {}, but the id is for the place of rank {}", other, o.rank));
  refused(o.nranks + 1, o.rank, config, fmt::format("but the id is for a group of {} ranks", o.nranks));
  config.topkMax -= 1;
  refused(o.nranks, o.rank, config, fmt::format("ranks disagree: topkMax is {} on rank ", config.topkMax + 1));
  config = configOf();
  config.heapBytes += 1 << 20;
  refused(o.nranks, o.rank, config, "config.heapBytes must be the same");
  return problem;
}

moeResult_t join(const Options& o, moeComm_t* comm, std::string* problem) {
  ::setenv("MOECOMM_RANK", std::to_string(o.rank).c_str(), 1);  // rack.cc reads it
  const Board board(o.directory);
  const moeConfig_t config = configOf();
  if (o.round < 0) {
    const moeUniqueId_t id = board.awaitId("id");
    return moeCommInit(comm, o.nranks, o.rank, &id, &config);
  }
  const moeUniqueId_t id = board.awaitId(fmt::format("id{}-{}", o.round, o.rank));
  if (o.fails) {
    std::thread([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(o.failsAfterUs));
      ::kill(::getpid(), SIGKILL);
    }).detach();
  } else if (drawPlan(o)[static_cast<std::size_t>(o.round)].wrongFirst) {
    *problem = wrongAttempts(o, id);
  }
  if (!problem->empty()) return moeInternalError;
  // The others give it up if one of them fails while they take it in, and issue another id if they had taken it in.
  moeResult_t result = moeRemoteError;
  for (const auto end = Clock::now() + kRoundMax; result == moeRemoteError && Clock::now() < end;) {
    const moeUniqueId_t latest = board.awaitId(fmt::format("id{}-{}", o.round, o.rank));
    result = moeCommInit(comm, o.nranks, o.rank, &latest, &config);
  }
  if (o.fails) ::kill(::getpid(), SIGKILL);
  return result;
}

int runRank(const Options& o) {
  const auto arena = makeHostArena();
  moeComm_t comm = nullptr;
  std::string problem;
  if (join(o, &comm, &problem) != moeSuccess || !problem.empty()) {
    std::printf("FAILED %d in round %d: %s %s\n", o.rank, o.round, problem.c_str(), moeGetLastError(nullptr));
    return 1;
  }
  std::optional<Member> member(std::in_place, o, comm, *arena);
  const bool good = member->run();
  const std::string text = good ? member->text() : member->problem();
  const bool evicted = member->evicted();
  member.reset();
  const bool left = moeCommDestroy(comm) == moeSuccess;
  std::printf("%s %d since round %d: %s\n", good && left ? (evicted ? "evicted" : "member") : "FAILED", o.rank, o.round,
              text.c_str());
  std::fflush(stdout);
  return good && left ? 0 : 1;
}

// ---- The process that starts them ----

class Keeper {
 public:
  explicit Keeper(const Options& o) : o_(o), plan_(drawPlan(o)) {}
  ~Keeper() {
    for (const auto& [process, rank] : running_) ::kill(process, SIGKILL);
    while (!running_.empty() && ::waitpid(running_.begin()->first, nullptr, 0) > 0) running_.erase(running_.begin());
  }

  int run() {
    moeUniqueId_t id;
    if (moeGetUniqueId(&id) != moeSuccess) return 1;
    Board(o_.directory).put("id", &id, sizeof id);
    for (int rank = 0; rank < o_.nranks; ++rank) start({rank, -1, false});
    while (!running_.empty()) {
      int status = 0;
      const pid_t process = ::waitpid(-1, &status, WUNTRACED);
      const auto found = running_.find(process);
      if (found == running_.end()) continue;
      const Started ended = found->second;
      if (WIFSTOPPED(status) && startNext(ended)) continue;
      running_.erase(found);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && startNext(ended)) continue;
      std::printf("FAILED: rank %d since round %d has ended with status %d\n", ended.rank, ended.round, status);
      return 1;
    }
    std::printf("replaced %d processes in %d rounds; %d were killed before they were members; %d were evicted\n",
                replaced_, o_.rounds, failed_, evicted_);
    return 0;
  }

 private:
  struct Started {
    int rank, round;
    bool fails;
  };
  // The process that takes the place of one that was killed. False: this death is not planned.
  bool startNext(const Started& ended) {
    if (ended.fails) {
      ++failed_;
      start({ended.rank, ended.round, false});
      return true;
    }
    for (int k = ended.round + 1; k < o_.rounds; ++k) {
      const Round& round = plan_[static_cast<std::size_t>(k)];
      if (!isAmong(round.victims, ended.rank)) continue;
      ++replaced_;
      evicted_ += round.stops ? 1 : 0;
      start({ended.rank, k, round.fails});
      return true;
    }
    return false;
  }
  void start(const Started& what) {
    const pid_t process = ::fork();
    if (process != 0) {
      running_[process] = what;
      return;
    }
    std::vector<std::string> words{o_.program,
                                   "--directory",
                                   o_.directory,
                                   "--seed",
                                   std::to_string(o_.seed),
                                   "--ranks",
                                   std::to_string(o_.nranks),
                                   "--rounds",
                                   std::to_string(o_.rounds),
                                   "--rank",
                                   std::to_string(what.rank),
                                   "--round",
                                   std::to_string(what.round)};
    if (what.fails) {
      words.push_back("--fails-after-us");
      words.push_back(std::to_string(plan_[static_cast<std::size_t>(what.round)].failsAfterUs));
    }
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }

  const Options& o_;
  std::vector<Round> plan_;
  std::map<pid_t, Started> running_;
  int replaced_ = 0, failed_ = 0, evicted_ = 0;
};

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moe::test::Options options;
  options.program = argv[0];
  CLI::App app("A group whose ranks are killed and replaced");
  app.add_option("--directory", options.directory)->required();
  app.add_option("--seed", options.seed);
  app.add_option("--ranks", options.nranks)->check(CLI::Range(2, 64));
  app.add_option("--rounds", options.rounds);
  app.add_option("--rank", options.rank);
  app.add_option("--round", options.round);
  const auto* fails = app.add_option("--fails-after-us", options.failsAfterUs);
  CLI11_PARSE(app, argc, argv);
  options.fails = !fails->empty();
  return options.rank < 0 ? moe::test::Keeper(options).run() : moe::test::runRank(options);
}
