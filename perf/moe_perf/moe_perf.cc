// moe_perf measures and verifies dispatch and combine through the public API, with one rank per process or per thread.
// Exit status: 0, 1 if anything was wrong or failed, 2 for wrong options.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "moecomm.h"
#include "perf/ceiling/ceiling.h"
#include "perf/moe_perf/comm_config.h"
#include "perf/moe_perf/compare.h"
#include "perf/moe_perf/group.h"
#include "perf/moe_perf/options.h"
#include "perf/moe_perf/plot.h"
#include "perf/moe_perf/replaced_file.h"
#include "perf/moe_perf/report.h"
#include "perf/moe_perf/report_file.h"
#include "perf/moe_perf/runner.h"
#include "perf/moe_perf/soak.h"
#include "perf/moe_perf/tune.h"
#include "perf/payload/device.h"
#include "perf/statistics.h"
#include "perf/transport/transport_test.h"
#include "transport/remote.h"

namespace moe::perf {
namespace {

// Progress on standard error: one line, rewritten in place. Where that is no terminal, nothing is shown.
class Progress {
 public:
  explicit Progress(bool reports) : shown_(reports && ::isatty(STDERR_FILENO) == 1) {}

  void say(const std::string& sentence) {
    if (shown_) fmt::print(stderr, "\r\x1b[K{}", sentence);
  }
  void clear() { say(""); }

 private:
  bool shown_;
};

struct CommOwner {
  moeComm_t comm = nullptr;
  CommOwner() = default;
  CommOwner(const CommOwner&) = delete;
  CommOwner& operator=(const CommOwner&) = delete;
  ~CommOwner() { moeCommDestroy(comm); }
};

// The transport to ranks of other domains; empty if there are none.
std::string transportOf(moeComm_t comm, const moeCommInfo_t& info) {
  if (info.domainCount == 1) return "";
  moePeerInfo_t peer = MOE_PEER_INFO_INITIALIZER;
  check(moeCommGetPeerInfo(comm, (info.rank + info.domainSize) % info.nranks, &peer), comm, "moeCommGetPeerInfo");
  return nameOfTransport(peer.transport);
}

// The objects of one rank.
struct Rank {
  Rank(const Options& options, moeComm_t ownComm, Group& ownGroup) : comm(ownComm), group(ownGroup) {
    check(moeCommGetInfo(comm, &info), comm, "moeCommGetInfo");
    const bool host = info.backend == moeBackendHost;
    if (options.ceiling && host) throw std::runtime_error("--ceiling needs GPUs, but the backend is host");
    device = host ? makeHostDevice() : makeGpuDevice(info.device);
    machine = {host ? "host" : "cuda", device->name(),          info.nranks,
               info.domainCount,       transportOf(comm, info), busiestHost(group.gather(ownShare()))};
  }

  bool reports() const { return info.rank == 0; }

  moeComm_t comm;
  Group& group;
  moeCommInfo_t info = MOE_COMM_INFO_INITIALIZER;
  std::unique_ptr<Device> device;
  Machine machine;
};

CaseResult runCase(const Options& options, Rank& rank, int tokens,
                   const std::function<void(const std::string&)>& progress) {
  Runner runner(options, *rank.device, rank.comm, rank.group, tokens);
  CaseResult result = runner.run(progress);
  rank.device->dropGraphs();
  if (options.ceiling) {
    const CeilingCase which{options,
                            *rank.device,
                            rank.info.device,
                            rank.group,
                            tokens,
                            {&runner.plan(0), &runner.plan(1)},
                            result.multiprocessors};
    result.ceilings = measureCeilings(which, progress);
  }
  result.machine = rank.machine;
  return result;
}

// Where rank 0 reports. Files that were not requested are empty.
struct Reports {
  ReportFile json, csv, plot;
  Cases old;  // for --compare
  Provenance provenance;
};

Reports openReports(const Options& options) {
  Reports reports;
  if (!options.json.empty()) reports.json = ReportFile("--json", options.json);
  if (!options.csv.empty()) reports.csv = ReportFile("--csv", options.csv);
  if (!options.plot.empty()) reports.plot = ReportFile("--plot", options.plot);
  if (!options.tune.empty()) requireReplaceable("--tune", options.tune);
  if (!options.compare.empty()) reports.old = readCases("--compare", options.compare);
  reports.provenance = findProvenance();
  return reports;
}

// Writes text for people: to standard output, unless a report goes there. Flushes at once, because a case may take
// long.
void print(const Options& options, const std::string& text) {
  const bool aside = options.reportsOnStandardOutput() > 0;
  std::FILE* to = aside ? stderr : stdout;
  if (std::fputs(text.c_str(), to) < 0 || std::fflush(to) != 0) {
    throw std::runtime_error(
        fmt::format("cannot write to standard {}: {}", aside ? "error" : "output", std::strerror(errno)));
  }
}

// Plots and compares. Returns false if a case exceeds --compare-limit.
bool examine(const Options& options, Reports& reports, const Cases& cases) {
  if (reports.plot) reports.plot.write(plotText(cases));
  if (options.compare.empty()) return true;
  const ReportComparison comparison =
      compare(reports.old, cases, {options.compare, options.verbose, options.compareLimit, options.across});
  print(options, comparison.text);
  return !comparison.exceeded;
}

// These return true if everything was correct.
bool runCases(const Options& options, Reports& reports, Rank& rank) {
  Progress progress(rank.reports());
  std::vector<CaseResult> results;
  for (std::size_t i = 0; i < options.tokens.size(); ++i) {
    const std::string name = fmt::format("case {}/{}: {} tokens", i + 1, options.tokens.size(), options.tokens[i]);
    results.push_back(
        runCase(options, rank, options.tokens[i], [&](const std::string& what) { progress.say(name + ": " + what); }));
    progress.clear();
    if (rank.reports() && i == 0) print(options, headerText(options, results.back()));
    if (rank.reports()) print(options, caseText(options, results.back()));
  }
  if (rank.reports() && reports.json) reports.json.write(jsonText(reports.provenance, options, results));
  if (rank.reports() && reports.csv) reports.csv.write(csvText(reports.provenance, options, results));
  const bool examined = !rank.reports() || examine(options, reports, casesOf(reports.provenance, options, results));
  return examined &&
         std::all_of(results.begin(), results.end(), [](const CaseResult& result) { return result.verdict.correct(); });
}

bool soak(const Options& options, Reports& reports, Rank& rank) {
  SoakResult result = runSoak(options, *rank.device, rank.comm, rank.group, [&](const std::string& sentence) {
    if (rank.reports()) fmt::print(stderr, "moe_perf: soak: {}\n", sentence);
  });
  result.machine = rank.machine;
  if (rank.reports()) print(options, soakText(result));
  if (rank.reports() && reports.json) reports.json.write(jsonText(reports.provenance, options, result));
  return result.verdict.correct();
}

// Measures one number of tokens in both modes.
TunePoint tunePoint(const Options& options, Rank& rank, int tokens, Progress& progress, bool& correct) {
  const auto medianOf = [&](std::int32_t mode) {
    Options one = options;
    one.mode = mode;
    const CaseResult result = runCase(one, rank, tokens, [&](const std::string& what) {
      progress.say(fmt::format("{} tokens, mode {}: {}", tokens, one.modeName(), what));
    });
    correct = correct && result.verdict.correct();
    return summarize(result.step).median;
  };
  const double ll = medianOf(moeModeLl), ht = medianOf(moeModeHt);
  progress.clear();
  return {tokens, ll, ht};
}

bool tune(const Options& options, Reports& reports, Rank& rank) {
  moeLimits_t limits = MOE_LIMITS_INITIALIZER;
  check(moeGetLimits(rank.comm, &limits), rank.comm, "moeGetLimits");
  Tuning tuning{options, reports.provenance, rank.machine, limits.rowBytesMax, {}};
  Progress progress(rank.reports());
  bool correct = true;
  if (rank.reports()) print(options, tuneTitle());
  for (const int tokens : options.tokens) {
    tuning.points.push_back(tunePoint(options, rank, tokens, progress, correct));
    if (rank.reports()) print(options, tuneText(tuning.points.back()));
  }
  if (!rank.reports()) return correct;
  if (!correct) throw std::runtime_error(fmt::format("results were wrong: {} is not written", options.tune));
  replaceFile("--tune", options.tune, tuningFileText(tuning));
  print(options, fmt::format("{} has: {}\n", options.tune, tunedLine(tuning)));
  return true;
}

bool transportTest(const Options& options, Reports& reports, Group& group) {
  Progress progress(group.rank() == 0);
  const TransportResult result =
      testTransport(options, group, [&](const std::string& what) { progress.say("transport test: " + what); });
  progress.clear();
  if (group.rank() == 0) print(options, transportText(result));
  if (group.rank() == 0 && reports.json) reports.json.write(jsonText(reports.provenance, result));
  return result.correct();
}

bool runRank(const Options& options, Reports& reports, moeComm_t comm, Group& group) {
  if (options.routingFile != nullptr) {
    options.routingFile->require(group.nranks(), options.tokensMax(), options.topk, options.experts);
  }
  Rank rank(options, comm, group);
  if (options.soak > 0) return soak(options, reports, rank);
  return options.tune.empty() ? runCases(options, reports, rank) : tune(options, reports, rank);
}

void complain(int rank, const char* sentence) {
  fmt::print(stderr, "moe_perf: rank {}: {}\n", rank, sentence);
}

bool runAsProcess(const Options& options, Reports& reports, const LaunchPlace& place) {
  try {
    const std::unique_ptr<Group> group = makeProcessGroup();
    if (options.transportTest) return transportTest(options, reports, *group);
    const moeConfig_t config = makeConfig(options, place.nranks, place.localRank);
    CommOwner owner;
    check(moeCommInitFromEnv(&owner.comm, &config), nullptr, "moeCommInitFromEnv");
    return runRank(options, reports, owner.comm, *group);
  } catch (const std::exception& error) {
    complain(place.rank, error.what());
    return false;
  }
}

bool runThread(const Options& options, Reports& reports, const moeUniqueId_t& id, ThreadMeeting& meeting, int rank) {
  try {
    const std::unique_ptr<Group> group = makeThreadGroup(meeting, rank, options.threads);
    if (options.transportTest) return transportTest(options, reports, *group);
    const moeConfig_t config = makeConfig(options, options.threads, rank);
    CommOwner owner;
    check(moeCommInit(&owner.comm, options.threads, rank, &id, &config), nullptr, "moeCommInit");
    return runRank(options, reports, owner.comm, *group);
  } catch (const std::exception& error) {
    complain(rank, error.what());
    meeting.giveUp();
    return false;
  }
}

bool runAsThreads(const Options& options, Reports& reports) {
  moeUniqueId_t id;
  check(moeGetUniqueId(&id), nullptr, "moeGetUniqueId");
  ThreadMeeting meeting(options.threads);
  std::vector<char> correct(static_cast<std::size_t>(options.threads));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.threads; ++rank) {
    threads.emplace_back([&, rank] {
      correct[static_cast<std::size_t>(rank)] = runThread(options, reports, id, meeting, rank) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::all_of(correct.begin(), correct.end(), [](char one) { return one == 1; });
}

// Checks what must hold before ranks meet, and opens the reports on the rank that writes them.
bool readyToRun(const Options& options, bool isRank0, Reports& reports) {
  if (options.ceiling && gpuCount() == 0) {
    fmt::print(stderr, "moe_perf: --ceiling needs GPUs, and {}\n",
               MOECOMM_WITH_CUDA ? "there is none that can be used" : "this build of moecomm has no CUDA");
    return false;
  }
  try {
    if (isRank0) reports = openReports(options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_perf: {}\n", error.what());
    return false;
  }
  return true;
}

// Plots and compares stored reports. Returns the exit status.
int examineStored(const Options& options) {
  try {
    Reports reports = openReports(options);
    Cases cases = Cases::array();
    for (const std::string& path : options.from) {
      for (const Cases& one : readCases("--from", path)) cases.push_back(one);
    }
    return examine(options, reports, cases) ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_perf: {}\n", error.what());
    return 2;
  }
}

int run(const Options& options) {
  if (!options.from.empty()) return examineStored(options);
  const bool threads = options.threads > 0;
  const LaunchPlace place = threads ? LaunchPlace{0, options.threads, 0} : placeFromEnvironment();
  Reports reports;
  if (!readyToRun(options, place.rank == 0, reports)) return 2;
  const bool correct = threads ? runAsThreads(options, reports) : runAsProcess(options, reports, place);
  return correct ? 0 : 1;
}

}  // namespace
}  // namespace moe::perf

int main(int argc, char** argv) {
  try {
    int status = 0;
    const std::optional<moe::perf::Options> options = moe::perf::parseOptions(argc, argv, &status);
    return options ? moe::perf::run(*options) : status;
  } catch (const std::exception& error) {
    fmt::print(stderr, "moe_perf: {}\n", error.what());
    return 1;
  }
}
