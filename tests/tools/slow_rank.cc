// One rank of a job for tools to look at, started by moerun. It makes small steps, and between them does work, of which
// one rank has more than the others. It ends when a file appears, when it has made its steps, or when it is killed.
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>

#include "api/rank_loop.h"

namespace moe::test {
namespace {

int run(int argc, char** argv) {
  int slow = -1, percent = 20, workUs = 2000, stepsMax = 1000000;
  std::string end, dump;
  CLI::App app("Makes steps, and sleeps between them.");
  app.add_option("--slow", slow, "the rank that has more work");
  app.add_option("--percent", percent, "so much more");
  app.add_option("--work-us", workUs, "the others' work before each step");
  app.add_option("--steps", stepsMax, "at most");
  app.add_option("--end", end, "the job ends when this file exists");
  app.add_option("--dump", dump, "each rank dumps its steps into this folder when they are over");
  CLI11_PARSE(app, argc, argv);
  LoopSettings settings;
  settings.rank = std::atoi(std::getenv("MOECOMM_RANK"));
  settings.nranks = std::atoi(std::getenv("MOECOMM_NRANKS"));
  settings.stepsMax = stepsMax;
  const std::chrono::microseconds work(settings.rank == slow ? workUs * (100 + percent) / 100 : workUs);
  settings.beforeStep = [&](int) { std::this_thread::sleep_for(work); };
  moeConfig_t config = testConfig(moeBackendHost);
  config.timeoutMs = 5000;
  if (!dump.empty()) {
    config.dumpFolder = dump.c_str();
    settings.afterSteps = [](moeComm_t comm) {
      if (moeCommDump(comm, nullptr) != moeSuccess) ::_exit(1);
    };
  }
  const auto arena = makeHostArena();
  // Ranks must end with the same step, so the job is not asked to end: it is killed, or its steps are over.
  std::thread([&] {
    while (end.empty() || !std::filesystem::exists(end)) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::_exit(0);
  }).detach();
  const RankEnd result = joinAndLoop(settings, config, *arena);
  return result.loop.result == moeSuccess ? 0 : 1;
}

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  return moe::test::run(argc, argv);
}
