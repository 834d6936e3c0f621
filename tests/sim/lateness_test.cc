// Waits in the simulator's time. If a rank comes late to each of its operations, the waits of the others name it, and
// they name no other rank.
#include <gtest/gtest.h>

#include "protocol/fixed_shape.h"
#include "support/programs/tally_operation.h"
#include "support/simulator/simulator.h"

namespace moe::sim {
namespace {

using test::FixedShape;

constexpr int kLate = 2, kRanks = 4;
constexpr std::int64_t kLateUs = 500, kLeastUs = 450, kMostUs = 600, kOthersMostUs = 50;

void expectLateRank(const FixedShape& shape, std::uint64_t seed) {
  test::Scenario world = makeFixedScenario(shape, seed);
  Faults faults;
  faults.lateRank = kLate;
  faults.lateNs = kLateUs * 1000;
  Simulator simulator(*world.comm, *world.program, seed, faults, false);
  EXPECT_EQ(simulator.run().defect, "");
  EXPECT_TRUE(world.program->report().empty()) << world.program->report().text();
  for (int rank = 0; rank < kRanks; ++rank) {
    const test::Counters& counters = (*world.counters)[static_cast<std::size_t>(rank)];
    for (int other = 0; other < kRanks; ++other) {
      const std::int64_t us = counters.waitNs[static_cast<std::size_t>(other)] / 1000;
      const bool late = other == kLate && rank != kLate;
      EXPECT_EQ(counters.lateSteps[static_cast<std::size_t>(other)], late ? world.tallies : 0)
          << "of rank " << other << " at rank " << rank;
      EXPECT_LE(us, world.tallies * (late ? kMostUs : kOthersMostUs)) << "of rank " << other << " at rank " << rank;
      EXPECT_GE(us, late ? world.tallies * kLeastUs : 0) << "of rank " << other << " at rank " << rank;
    }
  }
}

TEST(Lateness, OfARankIsInTheWaitsOfAllOthersAndNobodyElseIs) {
  for (const bool lowLatency : {false, true}) {
    for (const Layout layout : {Layout::flat, Layout::expertMajor, Layout::expertMajorPadded, Layout::rankMajor}) {
      for (const bool landing : {false, true}) {
        SCOPED_TRACE(testing::Message() << "LL " << lowLatency << " layout " << static_cast<int>(layout) << " landing "
                                        << landing);
        FixedShape shape;
        shape.ranks = kRanks;
        shape.experts = 8;
        shape.layout = layout;
        shape.lowLatency = lowLatency;
        shape.landing = landing;
        shape.timed = true;
        shape.warps = 3;
        for (std::uint64_t seed = 1; seed <= 8; ++seed) expectLateRank(shape, seed);
      }
    }
  }
}

}  // namespace
}  // namespace moe::sim
