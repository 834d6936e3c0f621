// Ticks of the processor's counter as times of the steady clock, and steps that record either.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "backend/snapshot.h"
#include "device/policy/host/record.h"

namespace moe::test {
namespace {

// A reading, and between which times of the steady clock it was taken.
struct Bracketed {
  std::uint64_t before, reading, after;
};
template <class Read>
Bracketed bracketed(Read read) {
  Bracketed b{steadyNanoseconds(), 0, 0};
  b.reading = read();
  b.after = steadyNanoseconds();
  return b;
}

void expectBetween(const Bracketed& b, std::uint64_t ns, std::uint64_t error) {
  EXPECT_GE(ns + error, b.before);
  EXPECT_LE(ns, b.after + error);
}

TEST(HostSnapshot, KnowsTicksOnTheSteadyClock) {
  if (!counterKeepsTime()) GTEST_SKIP() << "the kernel keeps time by another clock";
  HostSnapshot snapshot(0, true);
  std::vector<Bracketed> all;
  for (int i = 0; i < 50; ++i) {
    all.push_back(bracketed(processorTicks));
    std::this_thread::sleep_for(std::chrono::microseconds(i * 20));
  }
  const TickScale scale = snapshot.scale();
  for (const Bracketed& b : all) {
    expectBetween(b, scale.nanosecondsAt(b.reading), static_cast<std::uint64_t>(scale.errorNs) + 1);
  }
}

// A step's begin and end as its ring has them, after a wait of a known length.
TEST(HostSnapshot, ConvertsWhatStepsRecord) {
  for (const bool inTicks : {false, counterKeepsTime()}) {
    HostSnapshot snapshot(0, inTicks);
    const auto ring = std::make_unique<StepRecorder>();
    ring->inTicks = inTicks ? 1 : 0;
    CommState state{};
    StepParams params{};
    params.comm.recorder = ring.get();
    params.comm.state = &state;
    const std::uint64_t before = steadyNanoseconds();
    const HostRecord record(Step::route, params);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    record.end();
    const std::uint64_t after = steadyNanoseconds();
    const TickScale scale = snapshot.scale();
    const auto at = [&](std::uint64_t time) { return inTicks ? scale.nanosecondsAt(time) : time; };
    const StepRecord& step = *ring->of(1);
    const auto error = static_cast<std::uint64_t>(scale.errorNs) + 1;
    EXPECT_GE(at(step.begin) + error, before);
    EXPECT_GE(at(step.end) - at(step.begin) + error, 5000000u);
    EXPECT_LE(at(step.end), after + error);
  }
}

}  // namespace
}  // namespace moe::test
