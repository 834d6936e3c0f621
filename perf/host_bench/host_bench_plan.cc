// The parts of a call before its launch: choosing a kernel's shape, and checking argument structs.
#include <string>

#include "backend/cuda_plan.h"
#include "base/sized_struct.h"
#include "comm/config/config.h"
#include "perf/host_bench/host_bench.h"

namespace moe::perf {
namespace {

constexpr GpuMachine kH200{132, 1, 232448, 478};
constexpr std::uint32_t kRowBytes = 14336;

// Measures the time that the timing itself adds to benchmarks with manual_time in their name.
void timeNothing(benchmark::State& state) {
  for (auto _ : state) state.SetIterationTime(secondsOf([] {}));
}

void planStep(benchmark::State& state, Step step, int items) {
  GpuMachine machine = kH200;
  const std::int64_t bytes = std::int64_t{items} * 4 * kRowBytes;
  for (auto _ : state) {
    benchmark::DoNotOptimize(machine);
    benchmark::DoNotOptimize(items);
    LaunchShape shape = planLaunch(machine, {step, items, items, kRowBytes, 0, true, bytes}, true);
    benchmark::DoNotOptimize(shape);
  }
}

void planRowParts(benchmark::State& state, int rows) {
  LaunchShape shape{132, 8, false};
  for (auto _ : state) {
    benchmark::DoNotOptimize(shape);
    benchmark::DoNotOptimize(rows);
    Parts parts = planParts(shape, rows, kRowBytes);
    benchmark::DoNotOptimize(parts);
  }
}

void readArguments(benchmark::State& state) {
  moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
  const moeDispatchArgs_t defaults = MOE_DISPATCH_ARGS_INITIALIZER;
  for (auto _ : state) {
    benchmark::DoNotOptimize(args);
    moeDispatchArgs_t own = readStruct(&args, "args", defaults);
    benchmark::DoNotOptimize(own);
  }
}

void resolveDefaults(benchmark::State& state) {
  for (auto _ : state) {
    Config config = resolveConfig(nullptr);
    benchmark::DoNotOptimize(config);
  }
}

}  // namespace

void addPlanBenchmarks() {
  benchmark::RegisterBenchmark("Nothing", timeNothing)->UseManualTime();
  const auto add = [](const char* name, Step step, int items) {
    benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { planStep(state, step, items); });
  };
  add("PlanLaunch/route", Step::route, 4096);
  add("PlanLaunch/htDispatch", Step::htDispatch, 4096);
  add("PlanLaunch/llDispatch", Step::llDispatch, 128);
  add("PlanLaunch/combine", Step::combine, 4096);
  for (const int rows : {1, 128, 4096}) {
    benchmark::RegisterBenchmark(("PlanParts/" + std::to_string(rows)).c_str(),
                                 [=](benchmark::State& state) { planRowParts(state, rows); });
  }
  benchmark::RegisterBenchmark("ReadStruct/moeDispatchArgs", readArguments);
  benchmark::RegisterBenchmark("ResolveConfig", resolveDefaults);
}

}  // namespace moe::perf
