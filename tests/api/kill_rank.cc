// One rank of a group in which one rank is killed (SIGKILL) or stopped (SIGSTOP) at a chosen point. kill_test.sh starts
// the ranks under moerun. Each survivor must get an error that names the victim within the timeout. The survivors then
// make a new communicator in the same processes and run verified steps on it. At the end, a survivor must hold no more
// threads and descriptors than before. It then prints "survivor R: ..." and exits with 0.
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
#include "support/api/moe_step.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string point = "inside", backend = "host", mode = "ht", directory;
  int victim = 1, delayMs = 100, timeoutMs = 5000;
  int rank = std::atoi(std::getenv("MOECOMM_RANK")), nranks = std::atoi(std::getenv("MOECOMM_NRANKS"));

  bool cuda() const { return backend == "cuda"; }
  bool dies() const { return rank == victim; }
  bool stops() const { return point.starts_with("stuck"); }  // instead of dying
  bool sleeps() const { return point == "asleep" || point == "stuck-asleep" || point == "waking"; }
  bool recovers() const { return point == "recovering" || point == "stuck-recovering"; }
};

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

moeConfig_t configOf(const Options& o) {
  moeConfig_t config = testConfig(o.cuda() ? moeBackendCuda : moeBackendHost);
  config.timeoutMs = o.timeoutMs;
  if (o.cuda()) config.device = o.rank % cudaDeviceCount();
  return config;
}

// A stopped rank neither continues nor closes its connections. The first survivor finds its process id in this file and
// kills it.
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

void later(const Options& o, void (*end)(const Options&)) {
  std::thread([&o, end] {
    std::this_thread::sleep_for(std::chrono::milliseconds(o.delayMs));
    end(o);
  }).detach();
}
void dieLater(const Options& o) {
  later(o, [](const Options&) { die(); });
}

// Returns when all ranks have come here, so that no step is under way. A dead rank does not come, and is not awaited
// for long.
void meet(const Options& o, int turn) {
  const auto nameOf = [&](int rank) {
    return o.directory + "/turn" + std::to_string(turn) + "-" + std::to_string(rank);
  };
  std::ofstream(nameOf(o.rank)).put(' ');
  const auto end = Clock::now() + std::chrono::milliseconds(1000);
  for (int rank = 0; rank < o.nranks; ++rank) {
    while (!std::filesystem::exists(nameOf(rank)) && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Every rank gives its steps up and recovers, though nothing has failed.
moeResult_t recover(const Options& o, moeComm_t comm, int turn) {
  meet(o, turn);
  if (o.dies() && o.point == "recovering" && turn == 20) dieLater(o);
  if (o.dies() && o.point == "stuck-recovering" && turn == 20) stop(o);
  return moeCommRecover(comm, nullptr, o.timeoutMs);
}

// Gives the window's memory back, and takes it anew.
moeResult_t sleepOnce(const Options& o, moeComm_t comm, int turn) {
  if (const moeResult_t asleep = moeCommSuspend(comm); asleep != moeSuccess) return asleep;
  if (o.dies() && o.point == "asleep" && turn == 20) die();
  if (o.dies() && o.point == "stuck-asleep" && turn == 20) stop(o);
  if (o.dies() && o.point == "waking" && turn == 20) dieLater(o);
  return moeCommResume(comm);
}

LoopSettings settingsOf(const Options& o) {
  LoopSettings settings;
  settings.rank = o.rank;
  settings.nranks = o.nranks;
  settings.cuda = o.cuda();
  settings.mode = o.mode == "ll" ? moeModeLl : moeModeHt;
  settings.beforeStep = [&o](int i) {
    if (!o.dies()) return;
    if (o.point == "between" && i == 20) die();
    if (o.point == "inside" && i == 5) dieLater(o);
    if (o.point == "stuck" && i == 20) stop(o);
    if (o.point == "stuck-inside" && i == 5) later(o, stop);
  };
  settings.betweenSteps = [&o](moeComm_t comm, int i) {
    if (i % 5 != 0) return moeSuccess;
    return o.sleeps() ? sleepOnce(o, comm, i) : o.recovers() ? recover(o, comm, i) : moeSuccess;
  };
  return settings;
}

// The id of the survivors' group. The lowest survivor writes it to a file, and the others read it.
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

// The domain size for the survivors: what MOECOMM_DOMAIN_SIZE says if it divides their number, else one rank.
std::int32_t domainSizeFor(int nranks) {
  const char* size = std::getenv("MOECOMM_DOMAIN_SIZE");
  return size != nullptr && nranks % std::max(std::atoi(size), 1) != 0 ? 1 : 0;
}

// Verified steps of the survivors alone.
bool startAgain(const Options& o, Arena& arena) {
  const moeUniqueId_t id = exchangeId(o);
  const int nranks = o.nranks - 1, rank = o.rank - (o.rank > o.victim ? 1 : 0);
  moeConfig_t config = configOf(o);
  config.domainSize = domainSizeFor(nranks);
  // Survivors may notice the failure a whole timeout apart: one sees a connection close, another waits in vain.
  config.timeoutMs *= 3;
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
      step.finish();
    }
  }
  return moeCommDestroy(comm) == moeSuccess && !::testing::UnitTest::GetInstance()->ad_hoc_test_result().Failed();
}

int run(const Options& o) {
  if (o.dies() && o.point == "never") die();
  if (o.dies() && o.point == "init") dieLater(o);
  const auto arena = o.cuda() ? makeCudaArena(o.rank % cudaDeviceCount()) : makeHostArena();
  const RankEnd end = joinAndLoop(settingsOf(o), configOf(o), *arena);
  const moeResult_t result = end.loop.result;
  const bool named = namesRank(end.sentence, o.victim) && (result == moeRemoteError || result == moeTimeout);
  const bool inTime = end.tookLessThan(o.timeoutMs + o.delayMs + kMarginMs);
  const bool again = end.left && inTime && named && end.loop.wrong == 0 && startAgain(o, *arena);
  if (o.stops() && o.rank == (o.victim == 0 ? 1 : 0)) endStopped(o);
  // The GPU's driver keeps threads and descriptors that the library cannot release.
  const bool good = again && (o.cuda() || holdsNoMoreThan(end.before));
  std::printf("%s %d: %s; a new communicator %s\n", good ? "survivor" : "FAILED", o.rank, end.text().c_str(),
              again ? "works" : "fails");
  std::fflush(stdout);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace moe::test

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moe::test::Options options;
  CLI::App app("One rank of a group of which a member is killed");
  app.add_option("--point", options.point)
      ->check(CLI::IsMember({"never", "init", "between", "inside", "stuck", "stuck-inside", "asleep", "waking",
                             "stuck-asleep", "recovering", "stuck-recovering"}));
  app.add_option("--backend", options.backend)->check(CLI::IsMember({"host", "cuda"}));
  app.add_option("--mode", options.mode)->check(CLI::IsMember({"ht", "ll"}));
  app.add_option("--directory", options.directory)->required();
  app.add_option("--victim", options.victim);
  app.add_option("--delay-ms", options.delayMs);
  app.add_option("--timeout-ms", options.timeoutMs);
  CLI11_PARSE(app, argc, argv);
  return moe::test::run(options);
}
