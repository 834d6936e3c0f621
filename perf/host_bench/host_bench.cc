// host_bench measures what the library costs the calling CPU thread. Its options are Google Benchmark's; --help lists
// them. Exit status 1 if a benchmark failed. Where there is no GPU, benchmarks that need one are reported as skipped,
// which is no failure.
#include "perf/host_bench/host_bench.h"

#include <atomic>
#include <cstdio>
#include <exception>
#include <string>

#include "moecomm.h"
#include "tools/program_text.h"

namespace moe::perf {
namespace {

std::atomic<bool>& failed() {
  static std::atomic<bool> any = false;
  return any;
}

}  // namespace

void runGuarded(benchmark::State& state, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    failed() = true;
    state.SkipWithError(error.what());
  }
}

bool anyFailed() {
  return failed();
}

}  // namespace moe::perf

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--version") {
    return std::puts(moe::tools::versionText("host_bench").c_str()) < 0 ? 1 : 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  moe::perf::addApiBenchmarks();
  moe::perf::addPlanBenchmarks();
  moe::perf::addBootstrapBenchmarks();
  moe::perf::addRouteBenchmarks();
  benchmark::AddCustomContext("moecomm", std::to_string(MOE_VERSION_CODE));
  benchmark::RunSpecifiedBenchmarks();
  benchmark::ClearRegisteredBenchmarks();  // also destroys the communicators that the benchmarks share
  benchmark::Shutdown();
  return moe::perf::anyFailed() ? 1 : 0;
}
