// One rank of a group of which a member is killed (SIGKILL) at a chosen point; started by kill_test.sh under moerun.
// Each survivor must get an error that names the victim within the timeout, and then make a new communicator of the
// survivors in the same process and run a verified step on it. Prints "survivor R: ..." and exits 0 if all of that was
// seen.
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

// Routes, dispatches and combines until something fails; returns the failure.
moeResult_t loopUntilFailure(const Options& o, moeComm_t comm, Arena& arena) {
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = 8;
  shape.topk = 2;
  shape.mode = o.mode == "ll" ? moeModeLl : moeModeHt;
  shape.tokensMax = 16;
  moeHandle_t handle = nullptr;
  moeResult_t result = moeHandleCreate(&handle, comm, &shape);
  std::vector<std::int32_t> ids;
  for (int i = 0; i < 16; ++i) ids.push_back(i % 8), ids.push_back((i + 3) % 8);
  const auto* idsThere = arena.put<std::int32_t>(ids);
  void *rows = arena.take(16 * 2048), *out = arena.take(std::size_t{16} * 2048 * static_cast<std::size_t>(o.nranks)),
       *sums = arena.take(16 * 2048);
  moeDispatchArgs_t dispatch = MOE_DISPATCH_ARGS_INITIALIZER;
  dispatch.rows = rows, dispatch.rowType = moeRowBf16, dispatch.hidden = 1024;
  dispatch.outRows = out, dispatch.outRowsMax = std::int64_t{16} * o.nranks;
  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  combine.rows = out, combine.rowType = moeRowBf16, combine.hidden = 1024, combine.out = sums;
  for (int i = 0; result == moeSuccess; ++i) {
    if (o.dies() && o.point == "between" && i == 20) die();
    if (o.dies() && o.point == "inside" && i == 5) dieLater(o.delayMs);
    if (o.dies() && o.point == "stuck" && i == 20) ::kill(::getpid(), SIGSTOP);
    result = moeRoute(handle, idsThere, nullptr, 16, arena.stream());
    if (result == moeSuccess) result = moeDispatch(handle, &dispatch, arena.stream());
    if (result == moeSuccess) result = moeCombine(handle, &combine, arena.stream());
    if (result == moeSuccess && i % 8 == 0) arena.synchronize();
    if (result == moeSuccess) moeCommGetAsyncError(comm, &result);
  }
  return result;
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
  while (!std::filesystem::exists(name)) std::this_thread::sleep_for(std::chrono::milliseconds(10));
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

bool namesVictim(const Options& o, const char* sentence) {
  const std::string text = sentence;
  return text.find("rank " + std::to_string(o.victim)) != std::string::npos ||
         text.find("ranks " + std::to_string(o.victim)) != std::string::npos;
}

int run(const Options& o) {
  if (o.dies() && o.point == "never") die();
  if (o.dies() && o.point == "init") dieLater(o.delayMs);
  const auto arena = o.cuda() ? makeCudaArena(o.rank % cudaDeviceCount()) : makeHostArena();
  const moeConfig_t config = configOf(o);
  const auto begin = Clock::now();
  moeComm_t comm = nullptr;
  moeResult_t result = moeCommInitFromEnv(&comm, &config);
  std::string sentence = moeGetLastError(nullptr);
  if (result == moeSuccess) {
    result = loopUntilFailure(o, comm, *arena);
    sentence = moeGetLastError(comm);
  }
  const auto seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const bool inTime = seconds * 1e3 < o.timeoutMs + o.delayMs + kMarginMs;
  const bool named = inTime && namesVictim(o, sentence.c_str()) && (result == moeRemoteError || result == moeTimeout);
  if (moeCommDestroy(comm) != moeSuccess) return 1;
  const bool again = named && startAgain(o, *arena);
  std::printf("%s %d: after %.2f s, %s: %s; a new communicator %s\n", named && again ? "survivor" : "FAILED", o.rank,
              seconds, moeGetErrorString(result), sentence.c_str(), again ? "works" : "fails");
  std::fflush(stdout);
  return named && again ? 0 : 1;
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
