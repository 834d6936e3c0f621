// The protocols in the seeded simulator. A failing seed is printed. `moecomm_sim --protocol P --mishap M --seed N` (or
// MOECOMM_SIM_SEED=N here) runs it again and prints its steps.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/worlds.h"

namespace moe::sim {
namespace {

using test::Protocol;

// Runs `seeds` worlds, or only the seed in MOECOMM_SIM_SEED.
void expectGoodWorlds(Protocol protocol, Mishap mishap, std::uint64_t seeds, const test::ScenarioLimits& limits = {}) {
  const char* only = std::getenv("MOECOMM_SIM_SEED");
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const std::uint64_t last = only != nullptr ? first : seeds;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const Verdict verdict = runWorld(seed, protocol, mishap, only != nullptr, limits);
    ASSERT_EQ(verdict.wrong, "") << "seed " << seed << "\n" << verdict.text;
  }
}

TEST(Simulation, CarriesHighThroughputWorldsToTheReferenceResult) {
  expectGoodWorlds(Protocol::ht, Mishap::nothing, 1500);
}
TEST(Simulation, CarriesLowLatencyWorldsToTheReferenceResult) {
  expectGoodWorlds(Protocol::ll, Mishap::nothing, 1500);
}
TEST(Simulation, KeepsInterleavedHandlesOfBothModesApart) {
  expectGoodWorlds(Protocol::both, Mishap::nothing, 1500);
}
// Tables by rank, and the bits of a word that has one for each rank, are too small for all ranks of such worlds.
TEST(Simulation, CarriesWorldsOfManyRanks) {
  struct Worlds {
    int ranks;
    std::uint64_t seeds;
  };
  for (const Worlds worlds : {Worlds{16, 10}, Worlds{33, 6}, Worlds{72, 3}}) {
    test::ScenarioLimits limits;
    limits.ranksMin = limits.ranks = worlds.ranks;
    limits.operations = 8;
    expectGoodWorlds(Protocol::ll, Mishap::nothing, worlds.seeds, limits);
    expectGoodWorlds(Protocol::ht, Mishap::nothing, worlds.seeds, limits);
  }
}
// A plain dispatch has a bit for each rank in one word.
TEST(Simulation, CarriesWorldsOfManyDecoders) {
  test::ScenarioLimits limits;
  limits.decodes = true;
  limits.ranksMin = limits.ranks = 32;
  limits.operations = 8;
  expectGoodWorlds(Protocol::ll, Mishap::nothing, 8, limits);
}
TEST(Simulation, CarriesWorldsOfDecoders) {
  test::ScenarioLimits limits;
  limits.decodes = true;
  expectGoodWorlds(Protocol::ll, Mishap::nothing, 500, limits);
  expectGoodWorlds(Protocol::both, Mishap::nothing, 200, limits);
  for (const Mishap mishap : {Mishap::capacity, Mishap::badIndex, Mishap::twice, Mishap::rowSize}) {
    expectGoodWorlds(Protocol::ll, mishap, 100, limits);
  }
  // In plain dispatches, blocks without tokens do not wait for slots. They wait for the rows of blocks that do.
  expectGoodWorlds(Protocol::ll, Mishap::death, 600, limits);
}
TEST(Simulation, EndsEveryWaitForADeadRankAndLeadsToIt) {
  expectGoodWorlds(Protocol::ht, Mishap::death, 400);
  expectGoodWorlds(Protocol::ll, Mishap::death, 400);
  expectGoodWorlds(Protocol::both, Mishap::death, 400);
}
// In all other worlds, too, ranks learn at once of each rank that leaves at its end. No rank may still wait for it.
TEST(Simulation, EndsEveryWaitForARankThatHasLeft) {
  expectGoodWorlds(Protocol::ht, Mishap::leave, 400);
  expectGoodWorlds(Protocol::ll, Mishap::leave, 400);
  expectGoodWorlds(Protocol::both, Mishap::leave, 400);
}
TEST(Simulation, StopsAtOnceWhenItIsToldTo) {
  expectGoodWorlds(Protocol::both, Mishap::abort, 300);
}
TEST(Simulation, RefusesASmallOutputOnEveryRankAndWritesNothing) {
  expectGoodWorlds(Protocol::ht, Mishap::capacity, 300);
  expectGoodWorlds(Protocol::ll, Mishap::capacity, 300);
}
TEST(Simulation, RefusesARouteWithAnIndexThatNamesNoExpertAndGoesOn) {
  expectGoodWorlds(Protocol::both, Mishap::badIndex, 200);
}
TEST(Simulation, RefusesARouteThatNamesAnExpertTwiceAndGoesOn) {
  expectGoodWorlds(Protocol::both, Mishap::twice, 200);
}
// A fast warp that found a stranger once kept a slow warp of its rank from sending its counts, and the peer timed out.
TEST(Simulation, RefusesAStrangerOnEveryRank) {
  expectGoodWorlds(Protocol::ht, Mishap::stranger, 400);
  expectGoodWorlds(Protocol::ll, Mishap::stranger, 400);
}

TEST(Simulation, RefusesRowsOfDifferentSizesOnEveryRank) {
  expectGoodWorlds(Protocol::ht, Mishap::rowSize, 300);
  expectGoodWorlds(Protocol::ll, Mishap::rowSize, 300);
}

TEST(Simulation, NamesTheRowsOfAnExpertThatAreNeverMade) {
  expectGoodWorlds(Protocol::ht, Mishap::unready, 300);
  expectGoodWorlds(Protocol::ll, Mishap::unready, 300);
}

TEST(Simulation, GoesOnWhenAllRanksHaveRecovered) {
  expectGoodWorlds(Protocol::ht, Mishap::recover, 150);
  expectGoodWorlds(Protocol::ll, Mishap::recover, 150);
  expectGoodWorlds(Protocol::both, Mishap::recover, 100);
}

TEST(Simulation, GoesOnWithoutLostRanks) {
  test::ScenarioLimits decoders;
  decoders.decodes = true;
  expectGoodWorlds(Protocol::ht, Mishap::loss, 150);
  expectGoodWorlds(Protocol::ll, Mishap::loss, 150);
  expectGoodWorlds(Protocol::ll, Mishap::loss, 100, decoders);
  expectGoodWorlds(Protocol::both, Mishap::loss, 100);
}

TEST(Simulation, RepeatsItselfFromTheSameSeed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Verdict first = runWorld(seed, Protocol::both, Mishap::any, false);
    const Verdict second = runWorld(seed, Protocol::both, Mishap::any, false);
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_EQ(first.text, second.text);
  }
}

}  // namespace
}  // namespace moe::sim
