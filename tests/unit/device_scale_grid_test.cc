// Blocks of scales: every expert has enough of them, wherever its rows begin, and no two rows share a word.
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <vector>

#include "device/view/scale_grid.h"
#include "support/base/rng.h"

namespace moe::test {
namespace {

ScaleGrid gridOfExperts(int experts, int alignment, int words) {
  return {INT32_MAX, 1, experts, 128 - std::gcd(alignment, 128), 0, std::int64_t{words} * 128, 128};
}

TEST(ScaleGrid, ExpertsHaveAsManyBlocksAsTheirRowsNeed) {
  Rng rng(81);
  for (int round = 0; round < 2000; ++round) {
    const int experts = rng.between(1, 20), alignment = rng.coin() ? rng.between(1, 300) : 1 << rng.below(9);
    const ScaleGrid grid = gridOfExperts(experts, alignment, 1);
    int offset = 0;
    for (int e = 0; e < experts; ++e) {
      const int rows = rng.oneIn(4) ? 0 : rng.below(400), group = (rows + alignment - 1) / alignment * alignment;
      const int blocks = grid.firstBlock(offset + group, e + 1) - grid.firstBlock(offset, e);
      ASSERT_GE(blocks, (group + 127) / 128) << "alignment " << alignment << " at row " << offset;
      ASSERT_LE(blocks, (group + 127) / 128 + 1);
      if (alignment % 128 == 0) {
        ASSERT_EQ(blocks * 128, group);
      }
      offset += group;
    }
    EXPECT_LE(grid.firstBlock(offset, experts), (offset + experts * 127) / 128);
  }
}

TEST(ScaleGrid, NoTwoRowsShareAWord) {
  const std::vector<int> offsets = {0, 0, 130, 131, 131, 400};
  constexpr int kWords = 3;
  const ScaleGrid grid = gridOfExperts(5, 1, kWords);
  std::set<std::int64_t> taken;
  for (int row = 0; row < offsets.back(); ++row) {
    const std::int64_t start = grid.start(row, [&](int e) { return offsets[static_cast<std::size_t>(e)]; });
    for (int word = 0; word < kWords; ++word) taken.insert(start + word * grid.wordStride);
  }
  EXPECT_EQ(taken.size(), static_cast<std::size_t>(offsets.back() * kWords));
  EXPECT_GE(*taken.begin(), 0);
  EXPECT_LT(*taken.rbegin(), std::int64_t{grid.firstBlock(400, 5)} * kWords * 128);
}

// The place of a row in a column, by the formula for bytes in moecomm.h.
TEST(ScaleGrid, ARowOfAColumnIsFoundAgain) {
  for (int row = 0; row < 128; ++row) {
    EXPECT_EQ(scaleColumnWord(row) * 4, row % 32 * 16 + row / 32 * 4);
    EXPECT_EQ(rowOfColumnWord(scaleColumnWord(row)), row);
    EXPECT_EQ(scaleColumnWord(row + 256), scaleColumnWord(row));
  }
}

}  // namespace
}  // namespace moe::test
