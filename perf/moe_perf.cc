// moe_perf: measures and verifies dispatch and combine through the public API, one rank per process or per thread.
// Exit status: 0, 1 if anything was wrong or failed, 2 for wrong options.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ceiling.h"
#include "device.h"
#include "group.h"
#include "moecomm.h"
#include "options.h"
#include "report.h"
#include "runner.h"

namespace moe::perf {
namespace {

moeConfig_t makeConfig(const Options& options, int nranks, int localRank) {
  moeConfig_t config = MOE_CONFIG_INITIALIZER;
  const int gpus = options.backend == moeBackendHost ? 0 : gpuCount();
  config.backend = options.backend;
  config.device = gpus > 0 ? localRank % gpus : -1;
  config.modes = options.mode;
  (options.mode == moeModeLl ? config.llTokensMax : config.tokensMax) = std::max(options.tokensMax(), 1);
  config.rowBytesMax = std::max(options.rowBytes(), options.combineRowBytes());
  config.sideBytesMax = options.sideBytes();
  config.topkMax = options.topk;
  config.expertsMax = options.experts;
  config.timeoutMs = options.timeoutMs;
  config.sms = options.sms;
  std::int64_t windowBytes = 0;
  for (int i = 0; i < (options.interleave ? 2 : 1); ++i) {
    windowBytes += Session::windowBytes(options, sessionSeed(options, i), nranks);
  }
  if (options.window != 0) {
    config.stagingRows = options.expertMajor() ? 0 : -1;  // combine prepares one row per token there
    config.heapBytes = windowBytes;
  } else {
    config.stagingRows = windowBytes / std::max(options.rowBytes(), 1) + 1;
  }
  return config;
}

// A line on standard error, rewritten in place on a terminal, else one per case.
class Progress {
 public:
  explicit Progress(bool shown) : shown_(shown), terminal_(::isatty(STDERR_FILENO) == 1) {}

  void say(const std::string& sentence) {
    if (shown_ && terminal_) fmt::print(stderr, "\r\x1b[K{}", sentence);
  }
  void beginCase(const std::string& name) {
    if (shown_ && !terminal_) fmt::print(stderr, "moe_perf: {}\n", name);
  }
  void clear() {
    if (shown_ && terminal_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool shown_;
  bool terminal_;
};

struct CommOwner {
  moeComm_t comm = nullptr;
  CommOwner() = default;
  CommOwner(const CommOwner&) = delete;
  CommOwner& operator=(const CommOwner&) = delete;
  ~CommOwner() { moeCommDestroy(comm); }
};

// All cases on one rank. Returns true if everything was correct.
bool runCases(const Options& options, moeComm_t comm, Group& group) {
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  check(moeCommGetInfo(comm, &info), comm, "moeCommGetInfo");
  const bool host = info.backend == moeBackendHost;
  if (options.ceiling && host) throw std::runtime_error("--ceiling needs GPUs, but the backend is host");
  const std::unique_ptr<Device> device = host ? makeHostDevice() : makeGpuDevice(info.device);
  const bool reports = info.rank == 0;
  Progress progress(reports);
  std::vector<CaseResult> results;
  for (std::size_t i = 0; i < options.tokens.size(); ++i) {
    const std::string name = fmt::format("case {}/{}: {} tokens", i + 1, options.tokens.size(), options.tokens[i]);
    progress.beginCase(name);
    Runner runner(options, *device, comm, group, options.tokens[i]);
    CaseResult result = runner.run([&](const std::string& what) { progress.say(name + ": " + what); });
    device->dropGraphs();
    if (options.ceiling) {
      const CeilingCase which{options, *device,           info.device,
                              group,   options.tokens[i], {&runner.plan(0), &runner.plan(1)}};
      result.ceilings = measureCeilings(which, [&](const std::string& what) { progress.say(name + ": " + what); });
    }
    result.backend = host ? "host" : "cuda";
    result.device = device->name();
    result.nranks = info.nranks;
    progress.clear();
    if (reports && i == 0) printHeader(options, result);
    if (reports) printCase(result);
    results.push_back(std::move(result));
  }
  if (reports && !options.json.empty()) writeJson(options.json, options, results);
  return std::all_of(results.begin(), results.end(), [](const CaseResult& result) { return result.correct(); });
}

void complain(int rank, const char* sentence) {
  fmt::print(stderr, "moe_perf: rank {}: {}\n", rank, sentence);
}

bool runAsProcess(const Options& options) {
  const LaunchPlace place = placeFromEnvironment();
  try {
    const std::unique_ptr<Group> group = makeProcessGroup();
    const moeConfig_t config = makeConfig(options, place.nranks, place.localRank);
    CommOwner owner;
    check(moeCommInitFromEnv(&owner.comm, &config), nullptr, "moeCommInitFromEnv");
    return runCases(options, owner.comm, *group);
  } catch (const std::exception& error) {
    complain(place.rank, error.what());
    return false;
  }
}

bool runThread(const Options& options, const moeUniqueId_t& id, ThreadMeeting& meeting, int rank) {
  try {
    const std::unique_ptr<Group> group = makeThreadGroup(meeting, rank, options.threads);
    const moeConfig_t config = makeConfig(options, options.threads, rank);
    CommOwner owner;
    check(moeCommInit(&owner.comm, options.threads, rank, &id, &config), nullptr, "moeCommInit");
    return runCases(options, owner.comm, *group);
  } catch (const std::exception& error) {
    complain(rank, error.what());
    meeting.giveUp();
    return false;
  }
}

bool runAsThreads(const Options& options) {
  moeUniqueId_t id;
  check(moeGetUniqueId(&id), nullptr, "moeGetUniqueId");
  ThreadMeeting meeting(options.threads);
  std::vector<char> correct(static_cast<std::size_t>(options.threads));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.threads; ++rank) {
    threads.emplace_back(
        [&, rank] { correct[static_cast<std::size_t>(rank)] = runThread(options, id, meeting, rank) ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  return std::all_of(correct.begin(), correct.end(), [](char one) { return one == 1; });
}

}  // namespace
}  // namespace moe::perf

int main(int argc, char** argv) {
  try {
    int status = 0;
    const std::optional<moe::perf::Options> options = moe::perf::parseOptions(argc, argv, &status);
    if (!options) return status;
    if (options->ceiling && moe::perf::gpuCount() == 0) {
      fmt::print(stderr, "moe_perf: --ceiling needs GPUs, and there is none that can be used\n");
      return 2;
    }
    const bool correct = options->threads > 0 ? moe::perf::runAsThreads(*options) : moe::perf::runAsProcess(*options);
    return correct ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_perf: {}\n", error.what());
    return 1;
  }
}
