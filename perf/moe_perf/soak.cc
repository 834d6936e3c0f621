#include "perf/moe_perf/soak.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <stdexcept>

#include "perf/moe_perf/soak_plan.h"
#include "perf/payload/draw.h"

namespace moe::perf {
namespace {

// The host waits for the device once in this many iterations. Otherwise the queue would grow without bound.
constexpr int kSettleEvery = 32;
constexpr int kProgressLines = 10;

using Clock = std::chrono::steady_clock;

// Takes the LL set that the next handle would get.
class FirstSet {
 public:
  FirstSet(moeComm_t comm, bool taken) {
    if (!taken) return;
    moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
    config.experts = config.topk = config.tokensMax = 1;
    config.mode = moeModeLl;
    check(moeHandleCreate(&handle_, comm, &config), comm, "moeHandleCreate");
  }
  FirstSet(const FirstSet&) = delete;
  FirstSet& operator=(const FirstSet&) = delete;
  ~FirstSet() { moeHandleDestroy(handle_); }

 private:
  moeHandle_t handle_ = nullptr;
};

class Soak {
 public:
  Soak(const Options& limits, Device& device, moeComm_t comm, Group& group,
       const std::function<void(const std::string&)>& say)
      : limits_(limits), device_(device), comm_(comm), group_(group), say_(say), checks_(device) {}

  SoakResult run() {
    const Clock::time_point start = Clock::now();
    for (const SoakShape& shape : drawSoak(limits_, group_.nranks())) {
      playOrNameIt(shape);
      judge(shape);
    }
    result_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return result_;
  }

 private:
  void playOrNameIt(const SoakShape& shape) {
    try {
      play(shape);
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{} (after {} iterations, in shape {}: {})", error.what(),
                                           result_.iterations, result_.shapes + 1, shape.describe()));
    }
  }

  void play(const SoakShape& shape) {
    const FirstSet firstSet(comm_, shape.secondSet);
    Exchange exchange(shape.options, shape.load, device_, comm_, checks_);
    std::array<Exchange::Step, kVersions> steps, faultySteps;
    for (int version = 0; version < kVersions; ++version) {
      const auto i = static_cast<std::size_t>(version);
      steps[i] = exchange.makeStep([&, version] { exchange.iterate(version, 1); });
      if (exchange.mayFail(version)) {
        faultySteps[i] = exchange.makeStep([&, version] { exchange.iterate(version, 1, true); });
      }
    }
    group_.barrier();  // every rank has allocated
    Draw faults(mix(shape.options.seed));
    for (int i = 0; i < shape.iterations; ++i) {
      const int version = i % kVersions;
      const bool faulty = exchange.mayFail(version) && faults.below(limits_.faultsOneIn) == 0;
      (faulty ? faultySteps : steps)[static_cast<std::size_t>(version)]();
      result_.faults += faulty ? 1 : 0;
      if ((i + 1) % kSettleEvery != 0 && i + 1 != shape.iterations) continue;
      exchange.settle();
      exchange.countWrongCounts(version, faulty);
    }
    group_.barrier();  // no rank frees while another still communicates
    device_.dropGraphs();
  }

  void judge(const SoakShape& shape) {
    const unsigned long long before = result_.verdict.wrong();
    result_.verdict = checks_.gatherVerdict(device_, group_);
    const std::int64_t tenth = tenthsDone();
    result_.iterations += shape.iterations;
    result_.llIterations += shape.options.mode == moeModeLl ? shape.iterations : 0;
    result_.shapes += 1;
    if (result_.verdict.wrong() > before) {
      result_.wrongShapes.push_back(fmt::format("{}: {}", result_.shapes, shape.describe()));
      say_("wrong in shape " + result_.wrongShapes.back());
    }
    if (tenthsDone() == tenth) return;
    say_(fmt::format("{} of {} iterations, {} shapes, {} elements wrong", result_.iterations, limits_.soak,
                     result_.shapes, result_.verdict.wrong()));
  }

  std::int64_t tenthsDone() const {
    return static_cast<std::int64_t>(result_.iterations) * kProgressLines / limits_.soak;
  }

  const Options& limits_;
  Device& device_;
  moeComm_t comm_;
  Group& group_;
  const std::function<void(const std::string&)>& say_;
  Checks checks_;
  SoakResult result_;
};

}  // namespace

SoakResult runSoak(const Options& limits, Device& device, moeComm_t comm, Group& group,
                   const std::function<void(const std::string&)>& say) {
  return Soak(limits, device, comm, group, say).run();
}

}  // namespace moe::perf
