// The warps of a combine in waves (device/protocol/core/waves.h): each wave is made by one whole team and taken by one,
// whatever the shape of the step.
#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "device/protocol/core/waves.h"

namespace moe::test {
namespace {

// Which warps of which teams have met at a wave.
struct Meet {
  std::set<int> indices, blocks;
  int count = 0, perBlock = 0, warps = 0;

  void add(WarpIndex team, int block) {
    if (warps != 0) {
      EXPECT_EQ(team.count, count);
      EXPECT_EQ(team.perBlock, perBlock);
    }
    count = team.count;
    perBlock = team.perBlock;
    indices.insert(team.index);
    blocks.insert(block);
    ++warps;
  }
  void expectWhole(int blocksOfStep) const {
    EXPECT_EQ(warps, count);
    EXPECT_EQ(static_cast<int>(indices.size()), count);
    EXPECT_TRUE(indices.empty() || (*indices.begin() == 0 && *indices.rbegin() == count - 1));
    EXPECT_EQ(static_cast<int>(blocks.size()), blocksOfStep);  // a block announces for its warps
    if (perBlock != 0) {
      EXPECT_EQ(perBlock * blocksOfStep, count);
    }
  }
};

WarpIndex warpOf(int index, int each, int blocks) {
  if (each == 1) return {index, blocks, blocks};
  return {index, each * blocks, blocks, 0, index / blocks};
}

void expectWholeTeams(int each, int blocks, const Makers& division, int waves) {
  HandleView handle{};
  handle.waves = waves;
  std::vector<Meet> made(static_cast<std::size_t>(waves)), taken(made.size());
  int making = 0;
  for (int index = 0; index < each * blocks; ++index) {
    const WarpIndex w = warpOf(index, each, blocks);
    const WaveRole role = waveRoleOf(division, w);
    int last = -1, first = waves;
    const auto handOver = [&](int wave, WarpIndex team, bool isLast) {
      EXPECT_EQ(wave, ++last);
      made[static_cast<std::size_t>(wave)].add(team, w.block());
      EXPECT_EQ(isLast, wave == (role.makes ? waves - 1 : 0));
      return true;
    };
    const auto take = [&](int wave, WarpIndex team, bool isFirst) {
      EXPECT_EQ(isFirst, first == waves);
      first = std::min(first, wave);
      taken[static_cast<std::size_t>(wave)].add(team, w.block());
      return true;
    };
    EXPECT_TRUE(inDividedWaves(handle, role, w, handOver, take));
    EXPECT_LT(first, waves) << "each warp learns from the records, with the first wave that it takes";
    making += role.makes ? 1 : 0;
  }
  // On machines without blocks each warp announces for itself.
  for (std::size_t wave = 0; wave < made.size(); ++wave) {
    made[wave].expectWhole(each > 1 ? blocks : made[wave].count);
    taken[wave].expectWhole(each > 1 ? blocks : taken[wave].count);
  }
  const int divides = each > 1 ? each : blocks, makers = each > 1 ? division.makers * blocks : division.makers;
  EXPECT_EQ(making, division.makers > 0 && division.makers < divides ? makers : each * blocks);
}

TEST(DividedWaves, AreMadeAndTakenByWholeTeams) {
  for (const int each : {1, 2, 7, 16}) {
    for (const int blocks : {1, 2, 5}) {
      for (const int waves : {2, 4, 8}) {
        for (int makers = 0; makers <= each + 1; ++makers) {
          for (int together = 1; together < waves; ++together) {
            const Makers division{static_cast<std::int16_t>(makers), static_cast<std::int16_t>(together)};
            SCOPED_TRACE(::testing::Message() << each << " warps of " << blocks << " blocks, " << makers
                                              << " makers, together from " << together << " of " << waves);
            ASSERT_NO_FATAL_FAILURE(expectWholeTeams(each, blocks, division, waves));
            if (HasFailure()) return;
          }
        }
      }
    }
  }
}

// A warp does nothing more after a wave that fails.
TEST(DividedWaves, EndWhereAWaveFails) {
  HandleView handle{};
  handle.waves = 4;
  const WarpIndex w = warpOf(0, 2, 2);
  int handed = 0, taken = 0;
  const auto handOver = [&](int, WarpIndex, bool) { return ++handed < 3; };
  const auto take = [&](int, WarpIndex, bool) { return ++taken > 0; };
  EXPECT_FALSE(inDividedWaves(handle, waveRoleOf({1, 3}, w), w, handOver, take));
  EXPECT_EQ(handed, 3);
  EXPECT_EQ(taken, 0);
  const auto makes = [](int, WarpIndex, bool) { return true; };
  const auto fails = [&](int, WarpIndex, bool) { return ++taken < 2; };
  EXPECT_FALSE(inDividedWaves(handle, waveRoleOf({1, 3}, warpOf(2, 2, 2)), warpOf(2, 2, 2), makes, fails));
  EXPECT_EQ(taken, 2);
}

}  // namespace
}  // namespace moe::test
