#include <gtest/gtest.h>

#include "comm/outstanding.h"

namespace moe::test {
namespace {

TEST(Outstanding, OperationsThatEndAtOnceNeverBlock) {
  Outstanding outstanding;
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(outstanding.mayStart(1));
    outstanding.start(false);
  }
  EXPECT_EQ(outstanding.count(), 0u);
}

TEST(Outstanding, AnOperationWaitsForTheOneThatUsedItsSlots) {
  Outstanding outstanding;
  const auto first = outstanding.start(true);
  EXPECT_FALSE(outstanding.mayStart(1));
  EXPECT_TRUE(outstanding.mayStart(2));
  const auto second = outstanding.start(true);
  EXPECT_FALSE(outstanding.mayStart(2));
  outstanding.complete(second);
  EXPECT_FALSE(outstanding.mayStart(2)) << "the third would write the slots of the first, which is not complete";
  outstanding.complete(first);
  EXPECT_TRUE(outstanding.mayStart(2));
}

}  // namespace
}  // namespace moe::test
