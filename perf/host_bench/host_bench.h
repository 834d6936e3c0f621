// Shared by the parts of host_bench. host_bench uses Google Benchmark to measure what the library costs the calling CPU
// thread: docs/internals/notebook.md, "Host costs".
#pragma once

#include <benchmark/benchmark.h>

#include <chrono>
#include <functional>

namespace moe::perf {

void addApiBenchmarks();        // calls of moecomm.h, on both backends
void addPlanBenchmarks();       // how a call is spread over a GPU, and argument checks
void addBootstrapBenchmarks();  // the all-gather of init
void addRouteBenchmarks();      // the host's route beside a hand-written one

// Runs `body`. If it throws, the benchmark is reported with the exception's text, and the program exits with 1.
void runGuarded(benchmark::State& state, const std::function<void()>& body);
bool anyFailed();

// The seconds that one call of `work` takes.
template <class Work>
double secondsOf(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace moe::perf
