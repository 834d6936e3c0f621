// Puts between healthy ranks, over any transport: TCP (tcp_test.cc), verbs and ibgda (tests/rdma).
#include "transport/transport_suite.h"

namespace moe::test {
namespace {

TEST_P(AnyTransport, WordsComeAfterTheRowsOfManyPosters) {
  const Plan plan{2, 4, 8};
  Members members(2, options(plan.windowBytes()));
  exchangeAll(members, plan, 50);
}

TEST_P(AnyTransport, FiveRanksPutToAllAtOnce) {
  const Plan plan{5, 2, 4};
  Members members(5, options(plan.windowBytes()));
  exchangeAll(members, plan, 20);
}

TEST_P(AnyTransport, LargePutsLandWhole) {
  const Plan plan{2, 1, 3, std::size_t{2} << 20};
  Members members(2, options(plan.windowBytes()));
  exchangeAll(members, plan, 3);
}

TEST_P(AnyTransport, SmallAndOddSizesLandWhereTheyBelong) {
  constexpr std::uint64_t kPlace = 2052;  // the longest put and four bytes behind it, which must stay untouched
  constexpr std::uint32_t kLongest = 2048;
  const auto source = [](std::uint32_t bytes) { return 64 + bytes / 4 * kPlace; };
  const auto target = [&](std::uint32_t bytes) { return source(bytes) + 520 * kPlace; };
  Members members(2, options(target(kLongest) + kPlace));
  for (std::uint32_t bytes = 4; bytes <= kLongest; bytes += 4) {
    fillRow(members[0].at(source(bytes)), bytes, bytes);
    ASSERT_TRUE(members[0].put(1, target(bytes), source(bytes), bytes));
    if (bytes % 12 == 0 || bytes == kLongest) members[0].putWord(1, 0, bytes);
  }
  members.run([](Member& me, int) { me.finish(); });
  EXPECT_EQ(members[1].load(0), kLongest);
  for (std::uint32_t bytes = 4; bytes <= kLongest; bytes += 4) {
    std::uint32_t behind = 0;
    std::memcpy(&behind, members[1].at(target(bytes) + bytes), 4);
    EXPECT_EQ(behind, 0U) << bytes;
    EXPECT_TRUE(rowIs(members[1].at(target(bytes)), bytes, bytes)) << bytes;
  }
  members.expectNoFailure();
}

TEST_P(AnyTransport, FinishReturnsWhenAllPutsHaveArrived) {
  Members members(2, options(std::size_t{8} << 20));
  constexpr int kRows = 5000;
  for (std::uint32_t i = 0; i < kRows; ++i) {
    fillRow(members[0].at(i * 800), 800, i);
    ASSERT_TRUE(members[0].put(1, 4000000 + i * 800, i * 800, 800));
  }
  ASSERT_TRUE(members[0].putWord(1, 8000000, 1));  // bytes may wait for the next word
  members.run([](Member& me, int) { me.finish(); });
  for (std::uint32_t i = 0; i < kRows; ++i) ASSERT_TRUE(rowIs(members[1].at(4000000 + i * 800), 800, i)) << i;
  members.expectNoFailure();
}

TEST_P(AnyTransport, AllMayLeaveWhenTheyHaveWhatTheyWaitedFor) {
  for (int round = 0; round < 3; ++round) {
    Members members(4, options());
    members.run([&](Member& me, int rank) {
      for (int to = 0; to < 4; ++to) {
        if (to != rank) me.putWord(to, static_cast<std::uint64_t>(rank) * 8, 1);
      }
      for (int from = 0; from < 4; ++from) {
        if (from != rank) me.await(static_cast<std::uint64_t>(from) * 8, 1);
      }
      me.finish();
      me.leave();
    });
    members.expectNoFailure();
  }
}

TEST_P(AnyTransport, LeavesNoDescriptorAndNoThread) {
  const auto once = [&] {
    Members members(4, options());
    members.run([](Member& me, int) { me.finish(); });
  };
  once();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = threadCount();
  for (int i = 0; i < 2; ++i) once();
  EXPECT_EQ(openDescriptors(), descriptors);
  EXPECT_EQ(threadCount(), threads);
}

}  // namespace
}  // namespace moe::test
