// One rank of a group that no rank leaves early. The carrier of its puts may have a mishap that cannot be repaired.
// Then the rank must get an error that names another rank within the timeout. All sums before that must be right, and
// after moeCommDestroy it must hold no more threads and descriptors than before. With --steps it must complete that
// many steps without an error. If all of this holds, it prints "ended R: ..." and exits with 0. rdma/ranks.sh,
// tools/library_netns_test.sh and others start it.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include <CLI/CLI.hpp>

#include "api/rank_loop.h"

namespace moe::test {
namespace {

struct Options {
  int steps = 0, timeoutMs = 5000;
  std::string mode = "ht", going;
  int rank = std::atoi(std::getenv("MOECOMM_RANK")), nranks = std::atoi(std::getenv("MOECOMM_NRANKS"));
};

bool isAsWanted(const Options& o, const RankEnd& end) {
  const moeResult_t result = end.loop.result;
  if (end.loop.wrong != 0 || !end.left || !end.tookLessThan(o.timeoutMs + kMarginMs)) return false;
  if (o.steps != 0) return result == moeSuccess && end.loop.steps == o.steps;
  return (result == moeRemoteError || result == moeTimeout) && namesAnotherRank(end.sentence, o.rank, o.nranks);
}

int run(const Options& o) {
  const auto arena = makeHostArena();
  moeConfig_t config = testConfig(moeBackendHost);
  config.timeoutMs = o.timeoutMs;
  LoopSettings settings;
  settings.rank = o.rank;
  settings.nranks = o.nranks;
  settings.mode = o.mode == "ll" ? moeModeLl : moeModeHt;
  if (o.steps != 0) settings.stepsMax = o.steps;
  settings.beforeStep = [&](int i) {
    if (i == 10 && !o.going.empty()) std::ofstream(o.going).put('x');
  };
  const RankEnd end = joinAndLoop(settings, config, *arena);
  const bool good = holdsNoMoreThan(end.before) && isAsWanted(o, end);
  std::printf("%s %d: %s\n", good ? "ended" : "FAILED", o.rank, end.text().c_str());
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
  app.add_option("--going", options.going, "file to make after ten steps");
  app.add_option("--timeout-ms", options.timeoutMs);
  CLI11_PARSE(app, argc, argv);
  return moe::test::run(options);
}
