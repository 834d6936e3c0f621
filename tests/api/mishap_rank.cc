// One rank of a group that nobody leaves; what carries its puts may have a mishap that nothing makes up for. Then the
// rank must get, within the timeout, an error that names another rank; all sums before that must be right; and after
// moeCommDestroy it must hold no more threads and descriptors than before. With --steps it is to make so many steps and
// no mistake. Prints "ended R: ..." and exits 0 if all of that was seen. Started under moerun by soft_hca/ranks.sh.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include "api/rank_loop.h"
#include "support/held.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMarginMs = 3000;  // on a busy machine

struct Options {
  int steps = 0, timeoutMs = 5000;
  std::string mode = "ht";
  int rank = std::atoi(std::getenv("MOECOMM_RANK")), nranks = std::atoi(std::getenv("MOECOMM_NRANKS"));
};

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

bool namesAnotherRank(const Options& o, const std::string& sentence) {
  for (int rank = 0; rank < o.nranks; ++rank) {
    if (rank != o.rank && namesRank(sentence, rank)) return true;
  }
  return false;
}

bool isAsWanted(const Options& o, const LoopEnd& end, const std::string& sentence) {
  if (end.wrong != 0) return false;
  if (o.steps != 0) return end.result == moeSuccess && end.steps == o.steps;
  return (end.result == moeRemoteError || end.result == moeTimeout) && namesAnotherRank(o, sentence);
}

int run(const Options& o) {
  const auto arena = makeHostArena();
  moeConfig_t config = testConfig(moeBackendHost);
  config.timeoutMs = o.timeoutMs;
  Held::settle();
  const Held before;
  const Clock::time_point begin = Clock::now();
  moeComm_t comm = nullptr;
  LoopEnd end;
  end.result = moeCommInitFromEnv(&comm, &config);
  end.seconds = secondsSince(begin);
  std::string sentence = moeGetLastError(nullptr);
  if (end.result == moeSuccess) {
    LoopSettings settings;
    settings.rank = o.rank, settings.nranks = o.nranks;
    settings.mode = o.mode == "ll" ? moeModeLl : moeModeHt;
    if (o.steps != 0) settings.stepsMax = o.steps;
    end = loopUntilFailure(settings, comm, *arena);
    sentence = end.result == moeSuccess ? "" : moeGetLastError(comm);
  }
  const Clock::time_point destroyed = Clock::now();
  bool good = moeCommDestroy(comm) == moeSuccess;
  const double leaving = secondsSince(destroyed), boundSeconds = (o.timeoutMs + kMarginMs) / 1e3;
  good = good && isAsWanted(o, end, sentence) && end.seconds < boundSeconds && leaving < boundSeconds;
  good = holdsNoMoreThan(before) && good;
  std::printf("%s %d: after %d steps, %ld wrong, then %.2f s: %s: %s (left in %.2f s)\n", good ? "ended" : "FAILED",
              o.rank, end.steps, end.wrong, end.seconds, nameOf(end.result).c_str(), sentence.c_str(), leaving);
  std::fflush(stdout);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moe::test::Options options;
  CLI::App app("One rank of a group whose puts may have a mishap");
  app.add_option("--mode", options.mode)->check(CLI::IsMember({"ht", "ll"}));
  app.add_option("--steps", options.steps);
  app.add_option("--timeout-ms", options.timeoutMs);
  CLI11_PARSE(app, argc, argv);
  return moe::test::run(options);
}
