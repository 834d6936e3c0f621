// One rank of a group of which a member is killed (SIGKILL) or stopped (SIGSTOP) at a chosen point; started by
// kill_test.sh under moerun. Each survivor must get an error that names the victim within the timeout, and then make a
// new communicator of the survivors in the same process and run a verified step on it. At the end it must hold no more
// threads and descriptors than before. Prints "survivor R: ..." and exits 0 if all of that was seen.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <CLI/CLI.hpp>

#include "api/rank_loop.h"
#include "support/held.h"
#include "support/moe_step.h"

namespace moe::test {
namespace {

constexpr int kMarginMs = 3000;  // for starting, on a busy machine

using Clock = std::chrono::steady_clock;

struct Options {
  std::string point = "inside", backend = "host", mode = "ht", directory;
  int victim = 1, delayMs = 100, timeoutMs = 5000;
  int rank = std::atoi(std::getenv("MOECOMM_RANK")), nranks = std::atoi(std::getenv("MOECOMM_NRANKS"));

  bool cuda() const { return backend == "cuda"; }
  bool dies() const { return rank == victim; }
};

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

void dieLater(int ms) {
  std::thread([ms] {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    die();
  }).detach();
}

moeConfig_t configOf(const Options& o) {
  moeConfig_t config = testConfig(o.cuda() ? moeBackendCuda : moeBackendHost);
  config.timeoutMs = o.timeoutMs;
  if (o.cuda()) config.device = o.rank % cudaDeviceCount();
  return config;
}

// Stopped, it neither goes on nor closes its connections. The new group's first rank, which ends it, finds it by this.
void stop(const Options& o) {
  const std::string name = o.directory + "/stopped";
  std::ofstream(name + ".part") << ::getpid();
  std::filesystem::rename(name + ".part", name);
  ::kill(::getpid(), SIGSTOP);
}
void endStopped(const Options& o) {
  pid_t process = 0;
  std::ifstream(o.directory + "/stopped") >> process;
  if (process > 0) ::kill(process, SIGKILL);
}

LoopEnd loopUntilFailure(const Options& o, moeComm_t comm, Arena& arena) {
  LoopSettings settings;
  settings.rank = o.rank, settings.nranks = o.nranks, settings.cuda = o.cuda();
  settings.mode = o.mode == "ll" ? moeModeLl : moeModeHt;
  settings.beforeStep = [&](int i) {
    if (!o.dies()) return;
    if (o.point == "between" && i == 20) die();
    if (o.point == "inside" && i == 5) dieLater(o.delayMs);
    if (o.point == "stuck" && i == 20) stop(o);
  };
  return test::loopUntilFailure(settings, comm, arena);
}

// The id of the survivors' group: the lowest of them writes it to a file.
moeUniqueId_t exchangeId(const Options& o) {
  const std::string name = o.directory + "/id";
  moeUniqueId_t id{};
  if (o.rank == (o.victim == 0 ? 1 : 0)) {
    if (moeGetUniqueId(&id) != moeSuccess) std::abort();
    std::ofstream(name + ".part", std::ios::binary).write(reinterpret_cast<const char*>(id.bytes), sizeof id.bytes);
    std::filesystem::rename(name + ".part", name);
    return id;
  }
  const auto end = Clock::now() + std::chrono::milliseconds(3 * o.timeoutMs);
  while (!std::filesystem::exists(name) && Clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::ifstream(name, std::ios::binary).read(reinterpret_cast<char*>(id.bytes), sizeof id.bytes);
  return id;
}

// Domains as large as MOECOMM_DOMAIN_SIZE says, if the survivors can be cut so, else of one rank each.
std::int32_t domainSizeFor(int nranks) {
  const char* size = std::getenv("MOECOMM_DOMAIN_SIZE");
  return size != nullptr && nranks % std::max(std::atoi(size), 1) != 0 ? 1 : 0;
}

// A verified step of the survivors alone.
bool startAgain(const Options& o, Arena& arena) {
  const moeUniqueId_t id = exchangeId(o);
  const int nranks = o.nranks - 1, rank = o.rank - (o.rank > o.victim ? 1 : 0);
  moeConfig_t config = configOf(o);
  config.domainSize = domainSizeFor(nranks);
  config.timeoutMs *= 3;  // survivors may notice a whole timeout apart: one sees a connection close, one finds nobody
  moeComm_t comm = nullptr;
  if (moeCommInit(&comm, nranks, rank, &id, &config) != moeSuccess) {
    std::printf("rank %d: no new communicator: %s\n", o.rank, moeGetLastError(nullptr));
    return false;
  }
  std::barrier alone(1);
  RankContext context{rank, nranks, comm, arena, alone};
  {
    StepCase c;
    MoeStep step(context, c);
    for (int i = 0; i < 3; ++i) {
      step.prepare(i);
      step.route();
      step.dispatch();
      step.checkDispatch();
      step.runExperts();
      step.combine();
      step.checkCombine();
    }
  }
  return moeCommDestroy(comm) == moeSuccess && !::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
}

int run(const Options& o) {
  if (o.dies() && o.point == "never") die();
  if (o.dies() && o.point == "init") dieLater(o.delayMs);
  const auto arena = o.cuda() ? makeCudaArena(o.rank % cudaDeviceCount()) : makeHostArena();
  const moeConfig_t config = configOf(o);
  Held::settle();
  Held before;
  auto begin = Clock::now();
  moeComm_t comm = nullptr;
  LoopEnd end;
  end.result = moeCommInitFromEnv(&comm, &config);
  end.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::string sentence = moeGetLastError(nullptr);
  // The rendezvous, a thread with a listener, tells ranks that come late of the failure, for ten seconds.
  if (end.result != moeSuccess && o.rank == 0) ++before.descriptors, ++before.threads;
  if (end.result == moeSuccess) {
    end = loopUntilFailure(o, comm, *arena);
    sentence = moeGetLastError(comm);
  }
  begin = Clock::now();
  const bool left = moeCommDestroy(comm) == moeSuccess;
  const double leaving = std::chrono::duration<double>(Clock::now() - begin).count();
  const bool inTime = std::max(end.seconds, leaving) * 1e3 < o.timeoutMs + o.delayMs + kMarginMs;
  const bool named = namesRank(sentence, o.victim) && (end.result == moeRemoteError || end.result == moeTimeout);
  const bool again = left && inTime && named && end.wrong == 0 && startAgain(o, *arena);
  if (o.point == "stuck" && o.rank == (o.victim == 0 ? 1 : 0)) endStopped(o);
  // What a GPU's driver keeps is not ours to give back.
  const bool good = again && (o.cuda() || holdsNoMoreThan(before));
  std::printf("%s %d: after %.2f s, %s: %s; %ld wrong; left in %.2f s; a new communicator %s\n",
              good ? "survivor" : "FAILED", o.rank, end.seconds, nameOf(end.result).c_str(), sentence.c_str(),
              end.wrong, leaving, again ? "works" : "fails");
  std::fflush(stdout);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moe::test::Options options;
  CLI::App app("One rank of a group of which a member is killed");
  app.add_option("--point", options.point)->check(CLI::IsMember({"never", "init", "between", "inside", "stuck"}));
  app.add_option("--backend", options.backend)->check(CLI::IsMember({"host", "cuda"}));
  app.add_option("--mode", options.mode)->check(CLI::IsMember({"ht", "ll"}));
  app.add_option("--directory", options.directory)->required();
  app.add_option("--victim", options.victim);
  app.add_option("--delay-ms", options.delayMs);
  app.add_option("--timeout-ms", options.timeoutMs);
  CLI11_PARSE(app, argc, argv);
  return moe::test::run(options);
}
