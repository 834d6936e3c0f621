#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bootstrap/group/failure.h"

namespace moe::test {
namespace {

using namespace bootstrap;

LateWait waitOf(int rank, int awaited) {
  return {{rank, moeTimeout, fmt::format("rank {}: rank {} did not come", rank, awaited)}, awaited};
}

LateWaits waitsOf(std::initializer_list<std::pair<int, int>> pairs) {
  LateWaits waits;
  for (const auto& [rank, awaited] : pairs) waits.add(waitOf(rank, awaited));
  return waits;
}

TEST(LateWaits, ComeOutAsTheyWentIn) {
  const LateWait wait = decodeLateWait(3, encodeLateWait(waitOf(3, 70000)));
  EXPECT_EQ(wait.failure.rank, 3);
  EXPECT_EQ(wait.failure.result, moeTimeout);
  EXPECT_EQ(wait.failure.sentence, "rank 3: rank 70000 did not come");
  EXPECT_EQ(wait.awaited, 70000);
}

TEST(LateWaits, TheFirstOfARankIsKept) {
  LateWaits waits = waitsOf({{1, 2}});
  EXPECT_FALSE(waits.add(waitOf(1, 3)));
  EXPECT_EQ(waits.lastFrom(1).awaited, 2);
}

TEST(LateWaits, WhoWaitsAloneNamesTheRankThatItWaitedFor) {
  EXPECT_EQ(waitsOf({{1, 2}}).lastFrom(1).failure.sentence, "rank 1: rank 2 did not come");
}

TEST(LateWaits, AChainEndsAtTheRankThatWaitsForNobody) {
  const LateWaits waits = waitsOf({{0, 7}, {7, 3}, {3, 5}, {4, 6}});
  for (const int rank : {0, 7, 3}) EXPECT_EQ(waits.lastFrom(rank).failure.sentence, "rank 3: rank 5 did not come");
  EXPECT_EQ(waits.lastFrom(4).awaited, 6);
}

TEST(LateWaits, InACircleEachRankKeepsItsOwn) {
  const LateWaits waits = waitsOf({{0, 1}, {1, 2}, {2, 1}, {3, 3}});
  for (const int rank : {0, 1, 2, 3}) EXPECT_EQ(waits.lastFrom(rank).failure.rank, rank);
}

TEST(LateWaits, OfOneForARankItsOwnDoesNotCount) {
  const LateWaits waits = waitsOf({{2, 2}, {4, 2}, {5, 3}});
  ASSERT_NE(waits.waitFor(2), nullptr);
  EXPECT_EQ(waits.waitFor(2)->failure.rank, 4);
  EXPECT_EQ(waits.waitFor(5), nullptr);
  EXPECT_EQ(waitsOf({{2, 2}}).waitFor(2), nullptr);
}

}  // namespace
}  // namespace moe::test
