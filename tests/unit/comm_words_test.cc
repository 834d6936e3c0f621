// Which words of a window outlast a step: all flags, and nothing that is large.
#include <gtest/gtest.h>

#include "device/view/settled.h"

namespace moe::test {
namespace {

CommShape shapeWith(int nranks, int domainSize) {
  CommShape s{};
  s.nranks = nranks;
  s.domainSize = domainSize;
  s.ht = s.ll = true;
  s.tokensMax = 4096;
  s.llTokensMax = 128;
  s.rowBytesMax = 16384;
  s.sideBytesMax = 64;
  s.topkMax = 8;
  s.expertsMax = 1024;
  s.llSets = 4;
  s.stagingAreas = 1;
  s.stagingRows = std::int64_t{nranks} * s.tokensMax;
  return s;
}

TEST(LastingWords, AreAllFlagsAndTheRowsThatWereSentLast) {
  for (const int domainSize : {8, 4}) {
    const WindowPlan at = WindowPlan::of(shapeWith(8, domainSize));
    const std::uint64_t end = lastingWords(at) * sizeof(Flag), flags = 8 * sizeof(Flag);
    for (const std::uint64_t area : {at.routeCountsReady, at.routeHeadersReady, at.routeCountsRead, at.routeCountsAgain,
                                     at.htOutputReady, at.htRowsReady, at.htWeightsReady}) {
      EXPECT_LE(area + flags, end);
    }
    EXPECT_LE(at.htCombineDone + kParities * flags, end);
    for (const std::uint64_t area : {at.htRowWaves, at.htCombineWaves}) EXPECT_LE(area + kHtWaves * flags, end);
    for (const std::uint64_t area :
         {at.llRowsReady, at.llFree, at.llCombineSizes, at.llCombineReady, at.llCombineFree, at.llWeightsReady}) {
      EXPECT_LE(area + 4 * flags, end);
    }
    EXPECT_LE(at.llLastRows + 4 * 8 * sizeof(std::int32_t), end);
    const std::uint64_t rails = at.far.leaving > 0 && domainSize < 8 ? 2 * sizeof(Flag) : 0;
    for (const std::uint64_t area : {at.far.htRailWaves, at.far.htSumWaves}) EXPECT_LE(area + kHtWaves * rails, end);
    for (const std::uint64_t area : {at.far.htRailsFree, at.far.htSumsFree, at.far.leaving}) {
      EXPECT_LE(area + rails, end);
    }
  }
}

TEST(LastingWords, AreSmall) {
  for (const int nranks : {1, 8, 64, 512}) {
    const WindowPlan at = WindowPlan::of(shapeWith(nranks, nranks));
    EXPECT_LE(lastingWords(at) * sizeof(Flag), 8192 + 400 * static_cast<std::uint64_t>(nranks));
    EXPECT_LT(50 * lastingWords(at) * sizeof(Flag), at.totalBytes) << "more than 2 % of the window";
  }
}

TEST(Waves, AreMoreForMoreTokensAndFitTheWords) {
  int before = 2;
  for (const int tokensMax : {0, 1, 1024, 1025, 4096, 4097, 8192, 8193, 1 << 20}) {
    const int waves = htWavesOf(1, tokensMax);
    EXPECT_GE(waves, before);
    EXPECT_LE(waves, kHtWaves);
    EXPECT_EQ(htWavesOf(2, tokensMax), kHtWaves);
    before = waves;
  }
  EXPECT_EQ(htWavesOf(1, 1024), 2);
  EXPECT_EQ(htWavesOf(1, 4096), 4);
  EXPECT_EQ(before, kHtWaves);
}

}  // namespace
}  // namespace moe::test
