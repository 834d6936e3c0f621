// Groups that go on after a failure that nobody died of (Bootstrap::recover).
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

void meet(Bootstrap& member, int turn) {
  const std::uint8_t mine = static_cast<std::uint8_t>(member.rank() + turn);
  const auto all = member.allGather({&mine, 1}, "the test");
  for (int rank = 0; rank < member.nranks(); ++rank) {
    EXPECT_EQ(all.at(static_cast<std::size_t>(rank)).at(0), static_cast<std::uint8_t>(rank + turn));
  }
}

void recoverAndMeet(Bootstrap& member, int turn) {
  member.holdMonitor(20s);
  member.recover(moeAborted, "somebody recovers");
  meet(member, turn);
  member.barrier();
  member.releaseMonitor();
}

// The same for ranks of which some have given up before, which others may not have heard of.
void recoverUntilAllMeet(Bootstrap& member, int turn) {
  for (bool again = true; again;) {
    member.holdMonitor(20s);
    member.recover(moeAborted, "somebody recovers");
    const Outcome outcome = outcomeOf([&] { meet(member, turn); });
    again = outcome.result != moeSuccess && member.othersGaveUp();
    member.releaseMonitor();
    EXPECT_TRUE(again || outcome.result == moeSuccess) << outcome.sentence;
  }
}

// Some ranks come late, so that news and blobs of the next generation reach ranks that have not begun it.
void dawdle(int rank, int turn) {
  if ((rank * 7 + turn) % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds((rank + turn) % 7 * 5));
}

TEST(BootstrapRecover, AGroupGoesOnAfterAnnouncedFailures) {
  expectAllWell(world(40, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    for (int turn = 0; turn < 8; ++turn) {
      const int culprit = turn * 11 % member.nranks();
      const std::string why = "turn " + std::to_string(turn);
      if (member.rank() == culprit) member.announceFailure(moeTimeout, why);
      const bool hears = turn % 2 == 1 || member.rank() == culprit || reports.waitFor(why, 10s);
      EXPECT_TRUE(hears) << why;
      dawdle(member.rank(), turn);
      recoverAndMeet(member, turn);
    }
    member.leave();
  }));
}

TEST(BootstrapRecover, ARankThatRecoversTellsTheOthers) {
  expectAllWell(world(20, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    const bool first = member.rank() == 17;
    EXPECT_TRUE(first || reports.waitFor("somebody recovers", 10s));
    recoverAndMeet(member, 0);
    EXPECT_TRUE(!first || reports.all().empty());
    member.leave();
  }));
}

// A recovery fails on the ranks that have come. The next one finds all ranks in one generation, though the rank that
// was missing has not taken part in the first.
TEST(BootstrapRecover, RanksMeetAgainAfterARecoveryThatFailed) {
  Meet failed(5);
  expectAllWell(world(5, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    if (member.rank() != 3) {
      for (int turn = 0; turn < 3; ++turn) {
        member.holdMonitor(300ms);
        member.recover(moeAborted, "somebody recovers");
        EXPECT_EQ(outcomeOf([&] { meet(member, 0); }).result, moeTimeout);
        member.releaseMonitor();
      }
    }
    failed.wait();
    recoverAndMeet(member, 1);
    recoverAndMeet(member, 2);
    member.leave();
  }));
}

// Ranks try at different times, with little patience, so that blobs, results and news come to ranks of other
// generations.
TEST(BootstrapRecover, RanksThatTriedAtDifferentTimesMeet) {
  for (const int ranks : {3, 24}) {
    Meet tried(ranks), met(ranks);
    expectAllWell(world(ranks, [&](Bootstrap& member) {
      Reports reports;
      member.startMonitor([&](const auto& failure) { reports.add(failure); });
      unsigned random = static_cast<unsigned>(member.rank()) * 7919 + 1;
      const auto draw = [&](unsigned below) {
        random = random * 1103515245 + 12345;
        return std::chrono::milliseconds((random >> 16) % below);
      };
      for (int turn = 0; turn < 12; ++turn) {
        std::this_thread::sleep_for(draw(12));
        member.holdMonitor(1ms + draw(25));
        member.recover(moeAborted, "somebody recovers");
        outcomeOf([&] {
          for (int i = 0; i < 3; ++i) member.barrier();
        });
        member.releaseMonitor();
      }
      tried.wait();
      recoverUntilAllMeet(member, 100);
      met.wait();
      recoverAndMeet(member, 101);
      member.leave();
    }));
  }
}

TEST(BootstrapRecover, ALateWaitOfBeforeBlamesNobodyAfterwards) {
  expectAllWell(world(6, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    for (int turn = 0; turn < 5; ++turn) {
      if (member.rank() == 4) member.reportLateWait(1, moeTimeout, "rank 1 is late");
      dawdle(member.rank(), turn);
      recoverAndMeet(member, turn);
    }
    const std::size_t before = reports.all().size();
    std::this_thread::sleep_for(bootstrap::kVerdict + 300ms);  // answers of before would come by then
    EXPECT_EQ(reports.all().size(), before);
    if (member.rank() == 4) member.reportLateWait(1, moeTimeout, "rank 1 is late again");
    EXPECT_TRUE(reports.waitFor("rank 1 is late again", 10s));
    member.leave();
  }));
}

TEST(BootstrapRecover, ADeathStillCounts) {
  std::atomic<int> named = 0;
  Meet dead(4), again(3), over(3);
  expectAllWell(world(4, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    if (member.rank() == 2) {
      dead.wait();
      return member.leave();
    }
    dead.wait();
    for (int turn = 0; turn < 2; ++turn) {
      member.holdMonitor(20s);
      member.recover(moeAborted, "somebody recovers");
      const Outcome outcome = outcomeOf([&] { meet(member, 0); });
      named += outcome.result == moeRemoteError && outcome.sentence.find("rank 2 left") != std::string::npos ? 1 : 0;
      member.releaseMonitor();
      if (turn == 0) again.wait();  // a rank that recovers ends the collectives of others
    }
    over.wait();
    member.leave();
  }));
  EXPECT_EQ(named, 6);
}

}  // namespace
}  // namespace moe::test
