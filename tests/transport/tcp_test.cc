// Tests of TCP alone, between healthy ranks: rings, joined frames, steps that help. tcp_failure_test.cc has the
// unhealthy ranks. transport_suite.cc has the tests of all transports.
#include "transport/fake_tcp_peer.h"
#include "transport/transport_suite.h"

namespace moe::test {
namespace {

MemberOptions withRing(std::uint32_t slots, std::size_t backlogMax = 1U << 16U) {
  MemberOptions options;
  options.tcp.ringSlots = slots;
  options.tcp.backlogMax = backlogMax;
  return options;
}

TEST(Tcp, WordsComeAfterTheRowsOfManyPostersThroughARingThatIsAlwaysFull) {
  const Plan plan{2, 4, 8};
  MemberOptions options = withRing(4);
  options.windowBytes = plan.windowBytes();
  Members members(2, options);
  exchangeAll(members, plan, 200);
}

TEST(Tcp, AFullBacklogMakesTheRingWait) {
  const Plan plan{3, 2, 16};
  MemberOptions options = withRing(8, 2);
  options.windowBytes = plan.windowBytes();
  Members members(3, options);
  exchangeAll(members, plan, 50);
}

TEST(Tcp, EveryNumberOfRingsServesEveryRank) {
  const Plan plan{4, 1, 4};
  for (int rings = 1; rings <= kPutRingsMax; ++rings) {
    MemberOptions options = withRing(16);
    options.windowBytes = plan.windowBytes();
    options.tcp.rings = rings;
    Members members(4, options);
    EXPECT_EQ(members[0].transport().view().rings, std::min(rings, 3));
    EXPECT_EQ(members[0].transport().kind(), moeTransportTcp);
    exchangeAll(members, plan, 10);
  }
}

// Some sizes are smaller than what the receiver reads ahead at once.
TEST(Tcp, SizesAroundWhatIsReceivedAheadLandWhereTheyBelong) {
  constexpr std::uint64_t kPlace = 65540, kPlaces = 24;
  constexpr std::uint32_t kSizes[] = {488, 512, 4096, 8168, 8188, 8192, 8196, 16360, 16380, 16384, 16388, 65536};
  MemberOptions options = withRing(32);
  options.windowBytes = 4096 + 2 * kPlaces * kPlace;
  Members members(2, options);
  std::uint64_t place = 0;
  const auto source = [&] { return 64 + place * kPlace; };
  for (int repeat = 0; repeat < 2; ++repeat) {
    for (const std::uint32_t bytes : kSizes) {
      fillRow(members[0].at(source()), bytes, bytes);
      ASSERT_TRUE(members[0].put(1, source() + kPlaces * kPlace, source(), bytes));
      if (++place % 3 == 0) members[0].putWord(1, 0, place);
    }
  }
  members[1].await(0, kPlaces);
  for (place = 0; place < kPlaces; ++place) {
    const std::uint32_t bytes = kSizes[place % std::size(kSizes)];
    EXPECT_TRUE(rowIs(members[1].at(source() + kPlaces * kPlace), bytes, bytes)) << bytes;
  }
  members[0].finish();
  members.expectNoFailure();
}

// In turns 0 and 2, each rank's steps send and receive, and the threads have nothing to do. In turn 1, the threads do
// all of it.
TEST(Tcp, StepsThatHelpAndThreadsTakeTurns) {
  constexpr std::uint64_t kRounds = 300, kBytes = 4096, kRow = 4096;
  Members members(3);
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    members.run([&](Member& me, int rank) {
      const int to = (rank + 1) % 3, from = (rank + 2) % 3;
      for (std::uint64_t round = turn * kRounds + 1; round <= (turn + 1) * kRounds; ++round) {
        const auto seed = static_cast<std::uint32_t>(round);
        fillRow(me.at(2 * kRow), kBytes, seed + static_cast<std::uint32_t>(rank));
        const bool helps = turn != 1;
        const Put row = putBytes(to, kRow, 2 * kRow, kBytes), word = putWord(to, 0, round);
        if (!(helps ? me.postQuietly(row) && me.postQuietly(word) : me.post(row) && me.post(word))) {
          throw Error(moeTimeout, "no put goes on");
        }
        helps ? me.awaitAndHelp(0, round) : me.await(0, round);
        if (!rowIs(me.at(kRow), kBytes, seed + static_cast<std::uint32_t>(from))) {
          throw Error(moeInternalError, "a row came after its word");
        }
        // This word says that the row was read. The word from `to` says that this rank's row has arrived.
        if (!(helps ? me.postQuietly(putWord(from, 8, round)) : me.post(putWord(from, 8, round)))) {
          throw Error(moeTimeout, "no word goes on");
        }
        helps ? me.awaitAndHelp(8, round) : me.await(8, round);
      }
      me.helper().leave(true);
    });
  }
  members.run([](Member& me, int) { me.finish(); });
  members.expectNoFailure();
}

// Otherwise each put would cost its receiver a header and a system call.
TEST(Tcp, PutsToPlacesBehindEachOtherTravelTogether) {
  constexpr std::uint32_t kRows = 1000, kBytes = 16;
  MemberAndFake pair;
  for (std::uint64_t i = 0; i < kRows; ++i) {
    ASSERT_TRUE(pair.member.postQuietly(putBytes(0, i * kBytes, i % 2 * 4096, kBytes)));
  }
  ASSERT_TRUE(pair.member.postQuietly(putWord(0, 65528, 1)));
  pair.member.helper().leave(true);
  std::vector<std::uint8_t> got(kRows * (kBytes + sizeof(TcpFrame)) + sizeof(TcpFrame));
  std::size_t bytes = 0;
  const auto lastIsWord = [&] {
    TcpFrame last{};
    if (bytes >= sizeof last) std::memcpy(&last, got.data() + bytes - sizeof last, sizeof last);
    return last.kind == TcpKind::word;
  };
  while (!lastIsWord() && bytes < got.size()) {
    pollfd ready{pair.fake->fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 20000), 1);
    const ssize_t more = ::recv(pair.fake->fd(), got.data() + bytes, got.size() - bytes, 0);
    ASSERT_GT(more, 0);
    bytes += static_cast<std::size_t>(more);
  }
  EXPECT_GE(bytes, kRows * kBytes + 2 * sizeof(TcpFrame));
  EXPECT_LT(bytes, kRows * kBytes + kRows / 4 * sizeof(TcpFrame));
}

TEST(Tcp, ARankThatHasFinishedMayLeaveAndTheOthersGoOn) {
  Members members(3);
  members[0].finish();
  members[0].leave();
  for (std::uint64_t round = 1; round <= 100; ++round) {
    members[1].putWord(0, 8, round);  // goes nowhere, which is no failure
    members[1].putWord(2, 8, round);
    members[2].await(8, round);
    std::this_thread::sleep_for(1ms);
  }
  members[1].finish();
  members[2].finish();
  members.expectNoFailure();
}

TEST(Tcp, ARankWithoutPeersHasARingAndNothingToDo) {
  Members members(1);
  EXPECT_EQ(members[0].transport().view().rings, 1);
  members[0].finish();
  members.expectNoFailure();
}

TEST(Tcp, ThreadsWithoutWorkSleep) {
  Members members(2);
  std::this_thread::sleep_for(50ms);
  timespec before{};
  timespec after{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  std::this_thread::sleep_for(1s);
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double busy =
      static_cast<double>(after.tv_sec - before.tv_sec) + static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-9;
  EXPECT_LT(busy, 0.25);
}

INSTANTIATE_TEST_SUITE_P(Tcp, AnyTransport, testing::Values(TransportCase{"tcp", [] { return MemberOptions{}; }}));

// ---- The end ----

TEST(Tcp, HasFinishedWhenEverythingHasArrived) {
  constexpr std::uint64_t kRow = 4096;
  Members members(3);
  members.run([&](Member& me, int rank) {
    fillRow(me.at(8 * kRow), kRow, 5);
    for (int to = 0; to < 3; ++to) {
      if (to == rank) continue;
      const std::uint64_t place = static_cast<std::uint64_t>(1 + rank);
      if (!me.put(to, place * kRow, 8 * kRow, kRow) || !me.putWord(to, 8 * place, 1)) {
        throw Error(moeTimeout, "no put goes on");
      }
    }
  });
  members.run([](Member& me, int) { EXPECT_TRUE(me.finish()); });
  members.run([&](Member& me, int rank) {
    for (std::uint64_t from = 0; from < 3; ++from) {
      if (static_cast<int>(from) == rank) continue;
      EXPECT_EQ(me.load(8 * (1 + from)), 1U) << "it has not arrived";
      EXPECT_TRUE(rowIs(me.at((1 + from) * kRow), kRow, 5));
    }
  });
  members.expectNoFailure();
}

TEST(Tcp, HasNotFinishedIfAPeerTakesNothing) {
  MemberAndFake pair;
  ASSERT_TRUE(pair.member.post(putWord(0, 64, 1)));
  EXPECT_FALSE(pair.member.finish(300ms));
}

}  // namespace
}  // namespace moe::test
