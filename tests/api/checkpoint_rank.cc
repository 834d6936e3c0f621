// One rank of a group whose processes are checkpointed and restored (decision 0136). checkpoint_test.sh starts the
// ranks and plays the engine: a rank falls asleep and says so, and goes on when it is told to. Steps before and after
// are verified. At the end a rank prints "rank R: right" and exits with 0.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "support/api/board.h"
#include "support/api/moe_step.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

constexpr std::chrono::seconds kAsleepMax{100};

struct Options {
  std::string directory;
  int rank = 0, nranks = 2, rounds = 1;
};

class Sleeper {
 public:
  explicit Sleeper(const Options& o) : o_(o), board_(o.directory), alone_(1) {}

  int run() {
    moeConfig_t config = testConfig(moeBackendHost);
    config.timeoutMs = 20000;
    const moeUniqueId_t first = meetingPoint(0);
    moeComm_t comm = nullptr;
    if (!good(moeCommInit(&comm, o_.nranks, o_.rank, &first, &config), nullptr)) return 1;
    const std::unique_ptr<Arena> arena = makeHostArena();
    RankContext context{o_.rank, o_.nranks, comm, *arena, alone_};
    {
      MoeStep high(context, mixedCase(moeModeHt, moeLayoutExpertMajor));
      MoeStep low(context, mixedCase(moeModeLl, moeLayoutRankMajor));
      for (int round = 0; round <= o_.rounds; ++round) {
        if (round > 0 && !sleep(comm, round)) return 1;
        for (MoeStep* step : {&high, &low}) {
          step->begin(round);
          step->finish();
        }
      }
    }
    if (!good(moeCommDestroy(comm), comm) || ::testing::Test::HasFailure()) return 1;
    fmt::print("rank {}: right\n", o_.rank);
    return 0;
  }

 private:
  bool sleep(moeComm_t comm, int round) {
    if (!good(moeCommSuspend(comm), comm) || !await("suspended", "part", round)) return false;
    if (!good(moeCommDisconnect(comm), comm) || !await("parted", "wake", round)) return false;
    const moeUniqueId_t next = meetingPoint(round);
    return good(moeCommReconnect(comm, &next), comm) && good(moeCommResume(comm), comm);
  }

  bool await(const char* mine, const char* awaited, int round) const {
    board_.put(fmt::format("{}{}.{}", mine, round, o_.rank));
    const std::string name = fmt::format("{}{}", awaited, round);
    for (const auto end = std::chrono::steady_clock::now() + kAsleepMax; !board_.has(name);) {
      if (std::chrono::steady_clock::now() > end) return good(moeTimeout, nullptr);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return true;
  }

  moeUniqueId_t meetingPoint(int round) const {
    const std::string name = fmt::format("id{}", round);
    if (o_.rank != 0) return board_.awaitId(name);
    moeUniqueId_t id{};
    good(moeGetUniqueId(&id), nullptr);
    board_.put(name, &id, sizeof id);
    return id;
  }

  bool good(moeResult_t result, moeComm_t comm) const {
    if (result != moeSuccess)
      fmt::print(stderr, "rank {}: {}: {}\n", o_.rank, moeGetErrorString(result), moeGetLastError(comm));
    return result == moeSuccess;
  }

  const Options& o_;
  Board board_;
  std::barrier<> alone_;
};

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moe::test::Options options;
  CLI::App app("One rank of a group whose processes are checkpointed");
  app.add_option("--directory", options.directory)->required();
  app.add_option("--rank", options.rank)->required();
  app.add_option("--ranks", options.nranks);
  app.add_option("--rounds", options.rounds);
  CLI11_PARSE(app, argc, argv);
  return moe::test::Sleeper(options).run();
}
