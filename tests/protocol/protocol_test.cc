// The protocols over the policies that run on threads, compared with the reference in fixed shapes and in random worlds
// like the simulator's. Under ThreadSanitizer, HostWarp shows wrong memory order and ThreadedWarp shows missing lane
// syncs.
#include <gtest/gtest.h>

#include "protocol/fixed_shape.h"
#include "support/base/sanitizers.h"
#include "support/programs/thread_runner.h"

namespace moe::test {
namespace {

constexpr std::uint64_t kSlow = MOE_TEST_TSAN ? 6 : 1;

// Under ThreadSanitizer LL worlds have no rows of different sizes: scenario.cc says why.
test::Protocol protocolOf(Trouble trouble) {
  return trouble == Trouble::rowSize && kSlow > 1 ? test::Protocol::ht : test::Protocol::both;
}

template <class Team>
class Protocol : public testing::Test {
 protected:
  static constexpr int kLanes = Team::kLanes;
  void run(FixedShape shape, std::uint64_t seed = 1) {
    for (const Layout layout : {Layout::flat, Layout::expertMajor, Layout::expertMajorPadded, Layout::rankMajor}) {
      for (const bool lowLatency : {false, true}) {
        shape.layout = layout;
        shape.lowLatency = lowLatency;
        Scenario scenario = makeFixedScenario(shape, seed++);
        const std::string wrong = runScenario<Team>(scenario);
        EXPECT_EQ(wrong, "") << "layout " << static_cast<int>(layout) << (lowLatency ? " LL\n" : " HT\n")
                             << scenario.text;
      }
    }
  }
};

using Teams = testing::Types<HostTeam, LaneTeam<4>>;
class TeamNames {
 public:
  template <class Team>
  static std::string GetName(int) {
    return Team::kLanes == 1 ? "HostWarp" : "ThreadedWarp";
  }
};
TYPED_TEST_SUITE(Protocol, Teams, TeamNames);

TYPED_TEST(Protocol, CarriesRowsOfOneRankToItself) {
  this->run({.ranks = 1, .experts = 3, .topk = 2});
}

TYPED_TEST(Protocol, CarriesRowsBetweenTwoRanksWithOneWarp) {
  this->run({.ranks = 2, .experts = 5, .topk = 3, .rowBytes = 48, .rowType = kFp16});
}

TYPED_TEST(Protocol, CutsRowsAmongSeveralWarps) {
  this->run(
      {.ranks = 2, .experts = 4, .topk = 4, .tokens = 7, .rowBytes = 400, .parts = 3, .warps = 3, .rowType = kFp32});
}

TYPED_TEST(Protocol, SendsRowsAsTheirBlocksBecomeReady) {
  this->run({.ranks = 2, .experts = 4, .topk = 3, .tokens = 12, .warps = 2, .alignment = 8, .awaitsRows = true});
  this->run({.ranks = 3,
             .experts = 6,
             .topk = 4,
             .rowBytes = 160,
             .parts = 2,
             .split = true,
             .landing = false,
             .awaitsRows = true});
  this->run({.ranks = 4, .domainSize = 2, .experts = 8, .topk = 3, .warps = 2, .alignment = 2, .awaitsRows = true});
}

TYPED_TEST(Protocol, CarriesASidePayloadAndAlignsExpertGroups) {
  this->run({.ranks = 3, .experts = 7, .topk = 2, .sideBytes = 32, .warps = 2, .alignment = 8, .wideIndex = true});
}

TYPED_TEST(Protocol, SplitsSendingAndReceiving) {
  this->run({.ranks = 3, .experts = 6, .topk = 3, .warps = 2, .split = true});
}

TYPED_TEST(Protocol, RoutesWithinALowLatencyDispatch) {
  this->run({.ranks = 1, .experts = 3, .topk = 2, .routesInside = true});
  this->run({.ranks = 3,
             .experts = 7,
             .topk = 3,
             .sideBytes = 32,
             .warps = 3,
             .alignment = 4,
             .wideIndex = true,
             .split = true,
             .routesInside = true});
  this->run({.ranks = 3, .experts = 7, .topk = 3, .warps = 3, .split = true, .routesInside = true});
  this->run({.ranks = 2,
             .experts = 6,
             .topk = 3,
             .layout = Layout::expertMajor,
             .warps = 2,
             .split = true,
             .routesInside = true});
  // More than a chunk of tokens, and tables that fit no scratch memory of a test's warp.
  this->run({.ranks = 2, .experts = 60, .topk = 4, .tokens = 70, .rowBytes = 32, .warps = 2, .routesInside = true});
  this->run({.ranks = 4, .domainSize = 2, .experts = 9, .topk = 5, .warps = 2, .routesInside = true});
}

// Plain LL steps, as most decoders run them. Some ranks use the steps whose warps are blocks, others the general ones.
TYPED_TEST(Protocol, LeavesRankMajorRowsInTheirSlots) {
  this->run({.ranks = 1, .experts = 3, .topk = 2, .routesInside = true, .inSlots = true, .rounds = 4});
  this->run({.ranks = 3,
             .experts = 7,
             .topk = 3,
             .rowBytes = 400,
             .warps = 3,
             .wideIndex = true,
             .routesInside = true,
             .inSlots = true,
             .rounds = 6});
  this->run({.ranks = 3,
             .experts = 7,
             .topk = 3,
             .warps = 3,
             .split = true,
             .routesInside = true,
             .inSlots = true,
             .rounds = 6});
  // A warp has more tokens than it takes at once, and fewer than there are warps.
  this->run({.ranks = 2, .experts = 60, .topk = 4, .tokens = 70, .warps = 2, .routesInside = true, .inSlots = true});
  this->run({.ranks = 2, .experts = 4, .topk = 2, .tokens = 1, .warps = 4, .routesInside = true, .inSlots = true});
}

TYPED_TEST(Protocol, CombinesBeforeItDispatchesAsABackwardPassDoes) {
  this->run({.ranks = 2, .experts = 6, .topk = 5, .tokens = 9, .combineFirst = true, .rounds = 4});
}

TYPED_TEST(Protocol, ReadsLowLatencyRowsWhereTheyAreMade) {
  this->run({.ranks = 3, .experts = 6, .topk = 4, .rowBytes = 112, .warps = 2, .landing = false, .combineFirst = true});
  this->run({.ranks = 4, .domainSize = 2, .experts = 9, .topk = 3, .warps = 2, .split = true, .landing = false});
}

TYPED_TEST(Protocol, TakesThirtyTwoExpertsPerTokenAndMoreRanksThanExperts) {
  this->run({.ranks = 4, .experts = 3, .topk = 3, .tokens = 3});
  this->run({.ranks = 3, .experts = 40, .topk = 32, .tokens = 3, .rowBytes = 16});
}

TYPED_TEST(Protocol, AgreesWithTheReferenceInRandomWorlds) {
  const ScenarioLimits limits{TypeParam::kLanes == 1 ? 5 : 3, 12, 14, TypeParam::kLanes == 1 ? 3 : 2};
  const std::uint64_t seeds = (TypeParam::kLanes == 1 ? 90u : 24u) / kSlow;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Scenario scenario = makeScenario(seed, test::Protocol::both, Trouble::none, limits, 60'000'000'000);
    const std::string wrong = runScenario<TypeParam>(scenario);
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << scenario.text;
  }
}

TYPED_TEST(Protocol, RefusesHandlesThatDiffer) {
  for (std::uint64_t seed = 1; seed <= 12 / kSlow; ++seed) {
    Scenario scenario =
        makeScenario(seed, test::Protocol::both, Trouble::stranger, {3, 8, 12, 2}, 5'000'000'000u * kSlow);
    const std::string wrong = runScenario<TypeParam>(scenario);
    ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << scenario.text;
  }
}

TYPED_TEST(Protocol, GoesOnAfterArgumentsThatCannotBe) {
  const ScenarioLimits limits{4, 8, 16, 2};
  for (const Trouble trouble : {Trouble::badIndex, Trouble::twice, Trouble::capacity, Trouble::rowSize}) {
    for (std::uint64_t seed = 1; seed <= 12 / kSlow; ++seed) {
      Scenario scenario = makeScenario(seed, protocolOf(trouble), trouble, limits, 60'000'000'000);
      const std::string wrong = runScenario<TypeParam>(scenario);
      ASSERT_EQ(wrong, "") << "seed " << seed << "\n" << scenario.text;
    }
  }
}

TEST(ProtocolOnHostWarp, WorksWithMoreRanksThanCores) {
  FixedShape shape{.ranks = 9, .experts = 20, .topk = 6, .tokens = 6};
  for (const bool lowLatency : {false, true}) {
    shape.lowLatency = lowLatency;
    Scenario scenario = makeFixedScenario(shape, 7);
    EXPECT_EQ(runScenario<HostTeam>(scenario), "");
  }
}

}  // namespace
}  // namespace moe::test
