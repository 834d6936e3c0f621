// Runs a program with ranks as threads of this process. A team says what a warp is: HostTeam is the library's host
// backend, CompiledTeam compiles its steps anew, LaneTeam runs ThreadedWarp. All warps of a step run at the same time.
#pragma once

#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "device/kernels/host_steps.h"
#include "device/kernels/run_step.h"
#include "device/policy/host/warp.h"
#include "support/programs/put_carriers.h"
#include "support/programs/scenario.h"
#include "support/programs/threaded_warp.h"

namespace moe::test {

// Runs body(i) for i = 0 .. n - 1 at the same time. Rethrows the first exception.
template <class Body>
void runTogether(int n, Body body) {
  std::exception_ptr failure;
  std::atomic<bool> failed{false};
  const auto guarded = [&](int i) {
    try {
      body(i);
    } catch (...) {
      if (!failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 1; i < n; ++i) threads.emplace_back([&, i] { guarded(i); });
  guarded(0);
  threads.clear();
  if (failure) std::rethrow_exception(failure);
}

// A build of the library's steps. Compiling them takes minutes, and the library already has them. It divides no step.
template <HostSimd kSimd>
struct BuildTeam {
  static constexpr int kLanes = 1;
  static void run(Step step, const StepParams& params, int warps, int) {
    const HostStepRunner runner = hostStepRunner(kSimd);
    runTogether(warps, [&](int i) {
      HostPace pace;
      runner(step, params, {i, warps, warps}, pace);
    });
  }
};
using HostTeam = BuildTeam<HostSimd::automatic>;

// Compiles the steps anew, for headers with planted defects.
template <class Warp>
struct CompiledTeam {
  static constexpr int kLanes = 1;
  static void run(Step step, const StepParams& params, int warps, int movers) {
    runTogether(warps, [&](int i) { runNamedStep(Warp(), step, params, {i, warps, warps}, movers); });
  }
};

template <int kLaneCount>
struct LaneTeam {
  static constexpr int kLanes = kLaneCount;
  static void run(Step step, const StepParams& params, int warps, int movers) {
    std::vector<LaneGroup<kLanes>> groups(static_cast<std::size_t>(warps));
    runTogether(warps * kLanes, [&](int i) { runLane(groups, i, step, params, movers); });
  }

  // Runs a dispatch beside its route.
  static void runBeside(const PreparedCall& call, const Task& route) {
    const Task& dispatch = *route.dispatch;
    const int first = route.warps * kLanes, second = dispatch.warps * kLanes;
    std::latch routed(first);
    std::vector<LaneGroup<kLanes>> routing(static_cast<std::size_t>(route.warps));
    std::vector<LaneGroup<kLanes>> dispatching(static_cast<std::size_t>(dispatch.warps));
    for (LaneGroup<kLanes>& group : dispatching) group.predecessor = &routed;
    runTogether(first + second, [&](int i) {
      if (i >= first) return runLane(dispatching, i - first, dispatch.step, call.dispatch, dispatch.movers);
      runLane(routing, i, route.step, call.route, 0);
      routed.count_down();
    });
  }

 private:
  static void runLane(std::vector<LaneGroup<kLanes>>& groups, int lane, Step step, const StepParams& params,
                      int movers) {
    const int warps = static_cast<int>(groups.size());
    const ThreadedWarp<kLanes> warp(groups[static_cast<std::size_t>(lane / kLanes)], lane % kLanes);
    runNamedStep(warp, step, params, {lane / kLanes, warps, warps}, movers);
    warp.endStep();
  }
};

// Runs a route and the dispatch that follows it: side by side, if the team can do that.
template <class Team>
void runCall(const Task& route) {
  PreparedCall call = prepareCall(route);
  const Task& dispatch = *route.dispatch;
  const Watcher watcher(dispatch.watch());
  if constexpr (requires { Team::runBeside(call, route); }) {
    if (call.overlaps) return Team::runBeside(call, route);
  }
  call.route.route.followed = call.dispatch.dispatch.besideRoute = 0;
  Team::run(route.step, call.route, route.warps, route.movers);
  Team::run(dispatch.step, call.dispatch, dispatch.warps, dispatch.movers);
}

template <class Team>
void runRank(TestComm& comm, Program& program, int rank, Ending& ending) {
  for (const Task& task : program.tasks(rank)) {
    if (task.dispatch) {
      runCall<Team>(task);
    } else {
      const StepParams params = task.prepare();
      const Watcher watcher(task.watch());
      Team::run(stepFor(task, params), params, task.warps, task.movers);
    }
    ending.failure = comm.rank(rank).failure;
    if (ending.failure.ready != 0) return;
    task.finish();
    if (task.dispatch) task.dispatch->finish();
  }
  ending.finished = true;
}

template <class Team>
std::vector<Ending> runOnThreads(TestComm& comm, Program& program) {
  std::vector<Ending> endings(static_cast<std::size_t>(program.nranks()));
  const PutCarriers carriers(comm);
  runTogether(program.nranks(),
              [&](int rank) { runRank<Team>(comm, program, rank, endings[static_cast<std::size_t>(rank)]); });
  return endings;
}

// Runs a scenario. Returns what went wrong, or an empty string.
template <class Team>
std::string runScenario(Scenario& scenario) {
  try {
    const std::vector<Ending> endings = runOnThreads<Team>(*scenario.comm, *scenario.program);
    return judge(scenario, endings);
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace moe::test
