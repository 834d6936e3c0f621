// The look-ups between the start of a low-latency step and its announcement. A step of one token is as long as this
// chain, and no result shows that it has become longer.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "protocol/fixed_shape.h"
#include "sim/worlds.h"
#include "support/simulator/simulator.h"

namespace moe::sim {
namespace {

using test::FixedShape;

std::map<Step, int> lookUpsOf(Layout layout, int warps) {
  FixedShape shape;
  shape.ranks = 4;
  shape.experts = 8;
  shape.layout = layout;
  shape.lowLatency = true;
  shape.tokens = 3;
  shape.warps = warps;
  shape.routesInside = true;
  shape.inSlots = true;
  shape.rounds = 6;
  test::Scenario world = makeFixedScenario(shape, 1);
  const Outcome outcome = Simulator(*world.comm, *world.program, 1, Faults{}, false).run();
  EXPECT_EQ(outcome.defect, "");
  EXPECT_TRUE(world.program->report().empty()) << world.program->report().text();
  return outcome.lookUps;
}

TEST(LookUps, AreOneRoundBeforeRowsInSlotsAreAnnounced) {
  const std::map<Step, int> expected{
      {Step::llSlotDispatch, 1}, {Step::llPlacedDispatch, 1}, {Step::llPlacedMore, 1}, {Step::llSlotCombine, 1}};
  EXPECT_EQ(lookUpsOf(Layout::rankMajor, 4), expected);
}
TEST(LookUps, AreOneRoundBeforeRowsForPlacesAreAnnounced) {
  for (const Layout layout : {Layout::flat, Layout::expertMajor, Layout::expertMajorPadded}) {
    EXPECT_EQ(lookUpsOf(layout, 4).at(Step::llPlacedDispatch), 1) << static_cast<int>(layout);
  }
}
// The only block also counts all tokens for the others.
TEST(LookUps, AreTwoRoundsInAStepOfOneBlock) {
  EXPECT_EQ(lookUpsOf(Layout::rankMajor, 1).at(Step::llSlotDispatch), 2);
}

// Ranks of a world take different steps for the same call. None may be missing from random worlds.
TEST(LookUps, AreCountedInEveryPlainStepOfRandomWorlds) {
  test::ScenarioLimits limits;
  limits.decodes = true;
  std::map<Step, int> seen;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    for (const auto& [step, count] : runWorld(seed, test::Protocol::ll, Mishap::nothing, false, limits).lookUps) {
      seen[step] = std::max(seen[step], count);
    }
  }
  for (const StepRow& row : kSteps.rows) {
    if (row.family != StepFamily::plain) continue;
    EXPECT_EQ(seen.count(row.step), 1u) << row.name;
  }
}

}  // namespace
}  // namespace moe::sim
