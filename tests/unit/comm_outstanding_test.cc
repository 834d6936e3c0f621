#include <gtest/gtest.h>

#include <type_traits>

#include "comm/communicator/room.h"

namespace moe::test {
namespace {

// The library records an operation after its launch, when nothing may fail any more.
static_assert(noexcept(std::declval<Outstanding&>().start(true)) && noexcept(std::declval<Outstanding&>().complete(1)));
static_assert(std::is_trivially_copyable_v<Outstanding>);

TEST(Outstanding, OperationsThatEndAtOnceNeverBlock) {
  Outstanding outstanding;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(outstanding.mayStart());
    outstanding.start(false);
  }
  EXPECT_EQ(outstanding.count(), 0);
}

TEST(Outstanding, AnOperationWaitsForTheOneThatUsedItsSlots) {
  Outstanding outstanding(2);
  const auto first = outstanding.start(true);
  EXPECT_TRUE(outstanding.mayStart());
  const auto second = outstanding.start(true);
  EXPECT_FALSE(outstanding.mayStart());
  outstanding.complete(second);
  EXPECT_FALSE(outstanding.mayStart()) << "the third would write the slots of the first, which is not complete";
  outstanding.complete(first);
  EXPECT_TRUE(outstanding.mayStart());
  EXPECT_EQ(outstanding.count(), 0);
}

TEST(Outstanding, WithOneGenerationNothingStartsBesideAnOpenOperation) {
  Outstanding outstanding;
  const auto first = outstanding.start(true);
  EXPECT_FALSE(outstanding.mayStart());
  outstanding.complete(first);
  EXPECT_TRUE(outstanding.mayStart());
}

TEST(Outstanding, ManyRoundsInAnyOrderLeaveNothingBehind) {
  Outstanding outstanding(kParities);
  for (int round = 0; round < 100; ++round) {
    const auto first = outstanding.start(true), second = outstanding.start(true);
    EXPECT_EQ(outstanding.count(), kParities);
    EXPECT_FALSE(outstanding.mayStart());
    outstanding.complete(round % 2 == 0 ? first : second);
    EXPECT_EQ(outstanding.count(), 1);
    outstanding.complete(round % 2 == 0 ? second : first);
    EXPECT_TRUE(outstanding.mayStart());
  }
}

TEST(Outstanding, SeriesDoNotHinderEachOtherButForTheStagingArea) {
  OutstandingOperations all;
  const auto dispatch = all.start(Series::htDispatches, true, 0);
  EXPECT_TRUE(all.of(Series::htDispatches).mayStart());
  EXPECT_TRUE(all.of(Series::htCombines).mayStart());
  EXPECT_EQ(all.freeStaging(1), kNotStaged);
  EXPECT_EQ(all.freeStaging(2), 1);
  all.start(llSeries(1), true, kNotStaged);
  EXPECT_FALSE(all.of(llSeries(1)).mayStart());
  EXPECT_TRUE(all.of(llSeries(0)).mayStart());
  all.start(Series::htCombines, false, 1);  // ends at once, so it does not keep the area
  EXPECT_EQ(all.freeStaging(2), 1);
  all.complete(Series::htDispatches, dispatch, 0);
  EXPECT_EQ(all.freeStaging(1), 0);
}

TEST(Outstanding, TwoCombinesMayBeOpenUnlessThereIsOneGenerationOfTheirBuffers) {
  OutstandingOperations all, split(1);
  all.start(Series::htCombines, true, kNotStaged);
  EXPECT_TRUE(all.of(Series::htCombines).mayStart());
  split.start(Series::htCombines, true, kNotStaged);
  EXPECT_FALSE(split.of(Series::htCombines).mayStart());
  EXPECT_TRUE(split.of(Series::htDispatches).mayStart());
}

}  // namespace
}  // namespace moe::test
