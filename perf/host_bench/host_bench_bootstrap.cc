// The all-gather of init. Ranks are threads of this process and talk over the loopback interface.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/group/bootstrap.h"
#include "bootstrap/group/unique_id.h"
#include "perf/host_bench/host_bench.h"

namespace moe::perf {
namespace {

using bootstrap::Bootstrap;

constexpr const char* kLoopback = "lo";
constexpr std::chrono::seconds kTimeout{60};
constexpr std::size_t kBlobBytes = 256;  // per rank

// A rank needs some sockets. With hundreds of ranks a process must raise its limit of open descriptors.
void allowDescriptors(int ranks) {
  rlimit limit{};
  const auto wanted = static_cast<rlim_t>(ranks) * 16 + 256;
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// The report of one group's ranks to the benchmark. A rank that fails leaves the barrier. The bootstrap tells the
// others, and their calls fail with its sentence.
struct Gathering {
  explicit Gathering(int count) : ranks(count), meeting(count) {}

  int ranks;
  std::barrier<> meeting;
  double joinSeconds = 0, gatherSeconds = 0;  // written by rank 0
  std::mutex mutex;
  std::string failure;
};

void runRank(Gathering& group, const moeUniqueId_t& id, int rank, benchmark::IterationCount gathers) {
  bootstrap::Options options;
  options.nranks = group.ranks;
  options.rank = rank;
  options.timeout = kTimeout;
  options.interfaceName = kLoopback;
  std::unique_ptr<Bootstrap> member;
  const double joinSeconds = secondsOf([&] { member = Bootstrap::join(id, options); });
  const std::vector<std::uint8_t> mine(kBlobBytes, static_cast<std::uint8_t>(rank));
  member->barrier();
  const double gatherSeconds = secondsOf([&] {
    for (benchmark::IterationCount i = 0; i < gathers; ++i) {
      if (member->allGather(mine).size() != static_cast<std::size_t>(group.ranks))
        throw std::logic_error("a blob lost");
    }
  });
  if (rank == 0) {
    group.joinSeconds = joinSeconds;
    group.gatherSeconds = gatherSeconds;
  }
  group.meeting.arrive_and_wait();  // a rank that leaves early makes the others' collectives fail
}

void gather(benchmark::State& state, int ranks) {
  allowDescriptors(ranks);
  Gathering group(ranks);
  const moeUniqueId_t id = bootstrap::createUniqueId(kTimeout, kLoopback);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        runRank(group, id, rank, state.max_iterations);
      } catch (const std::exception& error) {
        const std::lock_guard lock(group.mutex);
        if (group.failure.empty()) group.failure = error.what();
        group.meeting.arrive_and_drop();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!group.failure.empty()) throw std::runtime_error(group.failure);
  while (state.KeepRunningBatch(state.max_iterations)) state.SetIterationTime(group.gatherSeconds);
  state.SetLabel(fmt::format("joined in {:.0f} ms", group.joinSeconds * 1e3));
}

}  // namespace

void addBootstrapBenchmarks() {
  const auto add = [](int ranks, benchmark::IterationCount gathers) {
    benchmark::RegisterBenchmark(("AllGather/" + std::to_string(ranks)).c_str(),
                                 [=](benchmark::State& state) { runGuarded(state, [&] { gather(state, ranks); }); })
        ->Iterations(gathers)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  };
  add(8, 200);
  add(64, 50);
  add(512, 5);
}

}  // namespace moe::perf
