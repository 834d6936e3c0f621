// Leaving cleanly is never a failure. All ranks remember it, and it leaves no hole in the tree for later news.
#include <algorithm>
#include <random>

#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

bool waitUntil(const std::function<bool()>& condition, std::chrono::milliseconds patience = 10s) {
  const auto start = Clock::now();
  while (!condition()) {
    if (Clock::now() - start > patience) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

TEST(BootstrapLeave, IsNoFailureAndIsRemembered) {
  Meet watching(20);
  Meet over(20);
  expectAllWell(world(20, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    if (member.rank() == 5) {
      const auto start = Clock::now();
      member.leave();
      EXPECT_LT(secondsSince(start), 0.8);  // its neighbours answer, so it does not wait for its deadline
    } else {
      EXPECT_TRUE(waitUntil([&] { return member.hasLeft(5); })) << "rank " << member.rank();
    }
    EXPECT_FALSE(member.hasLeft(6));
    over.wait();
    EXPECT_TRUE(reports.all().empty());
  }));
}

// The rank continues, but no rank needs to wait for it any more.
TEST(BootstrapLeave, IsAnnouncedByWhoHasNoMoreWork) {
  Meet watching(20);
  Meet over(20);
  expectAllWell(world(20, [&](Bootstrap& member) {
    member.startMonitor([](const auto& failure) { ADD_FAILURE() << failure.sentence; });
    watching.wait();
    if (member.rank() == 5) member.announceLeaving();
    EXPECT_TRUE(waitUntil([&] { return member.isLeaving(5); })) << "rank " << member.rank();
    EXPECT_FALSE(member.hasLeft(5));
    EXPECT_FALSE(member.isLeaving(6));
    over.wait();
  }));
}

// All ranks wait for the same company, and leave with the last rank of it.
TEST(BootstrapLeave, WaitsForItsCompany) {
  constexpr int kRanks = 12;
  Meet watching(kRanks);
  std::atomic<bool> lastLeaves = false;
  expectAllWell(world(kRanks, [&](Bootstrap& member) {
    member.startMonitor([&](const auto& failure) { ADD_FAILURE() << failure.sentence; });
    watching.wait();
    if (member.rank() == 7) {
      std::this_thread::sleep_for(300ms);
      lastLeaves = true;
    }
    const auto start = Clock::now();
    member.leave({4, 4, 20s});
    EXPECT_LT(secondsSince(start), 10.0);
    EXPECT_TRUE(lastLeaves) << "rank " << member.rank();
  }));
}

TEST(BootstrapLeave, WaitsForCompanyThatStaysNoLongerThanItsPatience) {
  Meet watching(5);
  Meet gone(5);
  expectAllWell(world(5, [&](Bootstrap& member) {
    member.startMonitor([&](const auto& failure) { ADD_FAILURE() << failure.sentence; });
    watching.wait();
    if (member.rank() == 2) {
      const auto start = Clock::now();
      member.leave({0, 5, 200ms});
      EXPECT_GE(secondsSince(start), 0.2);
      EXPECT_LT(secondsSince(start), 5.0);
    } else {
      EXPECT_TRUE(waitUntil([&] { return member.hasLeft(2); }));
    }
    gone.wait();
  }));
}

// No rank waits for ranks that have failed.
TEST(BootstrapLeave, DoesNotWaitForCompanyThatFailed) {
  Meet watching(4);
  Meet gone(4);
  std::atomic<int> reports = 0;
  expectAllWell(world(4, [&](Bootstrap& member) {
    member.startMonitor([&](const auto&) { ++reports; });
    watching.wait();
    if (member.rank() == 3) {
      member.announceFailure(moeInternalError, "rank 3: planted");
      return gone.wait();
    }
    EXPECT_TRUE(waitUntil([&] { return reports >= 3; }));
    const auto start = Clock::now();
    member.leave({0, 4, 20s});
    EXPECT_LT(secondsSince(start), 5.0);
    gone.wait();
  }));
}

TEST(BootstrapLeave, AllAtOnceIsNoFailure) {
  for (int turn = 0; turn < 5; ++turn) {
    const auto start = Clock::now();
    expectAllWell(world(40, [&](Bootstrap& member) {
      member.startMonitor([&](const auto& failure) { ADD_FAILURE() << failure.sentence; });
      member.leave();
      member.leave();
    }));
    EXPECT_LT(secondsSince(start), 5.0);
  }
}

TEST(BootstrapLeave, OneAfterTheOtherInRandomOrderIsNoFailure) {
  constexpr int kRanks = 40;
  for (unsigned seed = 1; seed <= 3; ++seed) {
    std::vector<int> delayMs(kRanks);
    std::mt19937 random(seed);
    for (int& delay : delayMs) delay = static_cast<int>(random() % 400);
    const auto start = Clock::now();
    expectAllWell(world(kRanks, [&](Bootstrap& member) {
      member.startMonitor([&](const auto& failure) { ADD_FAILURE() << failure.sentence; });
      std::this_thread::sleep_for(std::chrono::milliseconds(delayMs[static_cast<std::size_t>(member.rank())]));
    }));
    EXPECT_LT(secondsSince(start), 5.0) << "seed " << seed;
  }
}

TEST(BootstrapLeave, OfManyInnerRanksDoesNotCutTheTree) {
  constexpr int kRanks = 60;
  Meet watching(kRanks);
  Meet gone(kRanks);
  Meet over(kRanks);
  const auto leaves = [](int rank) { return rank < 3; };  // the root and all other ranks with children, except rank 3
  expectAllWell(world(kRanks, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    if (leaves(member.rank())) member.leave();
    gone.wait();
    if (member.rank() == 59) member.announceFailure(moeCudaError, "news");
    if (!leaves(member.rank()) && member.rank() != 59) {
      EXPECT_TRUE(reports.waitForOne(5s)) << "rank " << member.rank();
      for (int rank = 0; rank < kRanks; ++rank) EXPECT_EQ(member.hasLeft(rank), leaves(rank)) << rank;
    }
    over.wait();
  }));
}

// Most ranks leave at random times. Those that remain still hear what one of them announces, exactly once.
TEST(BootstrapLeave, OfMostRanksInAnyOrderKeepsTheRestTogether) {
  constexpr int kRanks = 60;
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    std::vector<int> leaveAtMs(kRanks, 0);
    for (int& at : leaveAtMs) at = static_cast<int>(random() % 60);
    std::vector<int> stayers;
    while (stayers.size() < 6) {
      const int rank = static_cast<int>(random() % kRanks);
      if (std::find(stayers.begin(), stayers.end(), rank) == stayers.end()) stayers.push_back(rank);
    }
    Meet gone(kRanks);
    Meet over(kRanks);
    expectAllWell(world(kRanks, [&](Bootstrap& member) {
      const int self = member.rank();
      const bool stays = std::find(stayers.begin(), stayers.end(), self) != stayers.end();
      Reports reports;
      member.startMonitor([&](const auto& failure) { reports.add(failure); });
      std::this_thread::sleep_for(std::chrono::milliseconds(leaveAtMs[static_cast<std::size_t>(self)]));
      if (!stays) member.leave();
      gone.wait();
      if (self == stayers[0]) member.announceFailure(moeCudaError, "news");
      if (stays && self != stayers[0]) {
        EXPECT_TRUE(reports.waitForOne(10s)) << "seed " << seed << " rank " << self;
      }
      over.wait();
      for (const auto& failure : reports.all()) EXPECT_EQ(failure.sentence, "news") << "seed " << seed;
    }));
  }
}

TEST(BootstrapLeave, ADeathAfterItsParentLeftIsStillNoticed) {
  Children children(1, [](int, const moeUniqueId_t& id, const auto& say) {
    auto member = Bootstrap::join(id, optionsOf(18, 20));
    member->startMonitor([](const auto&) {});
    say();
    std::this_thread::sleep_for(60s);
  });
  const moeUniqueId_t id = bootstrap::createUniqueId(20s, "");
  children.start(id);
  Meet watching(20);
  Meet over(19);
  std::thread killer([&] {
    children.awaitWord(0);
    watching.wait();
    std::this_thread::sleep_for(500ms);
    children.kill(0);
  });
  expectAllWell(inThreads(19, [&](int i) {
    Reports reports;
    auto member = Bootstrap::join(id, optionsOf(i < 18 ? i : 19, 20));
    member->startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    if (member->rank() == 1) {
      member->leave();
    } else {
      EXPECT_TRUE(reports.waitForOne(5s)) << "rank " << member->rank();
      for (const auto& failure : reports.all()) EXPECT_EQ(failure.rank, 18) << failure.sentence;
    }
    over.wait();
  }));
  killer.join();
}

TEST(BootstrapLeave, RightAfterTheLastBarrierIsNoFailureForSlowerRanks) {
  for (int turn = 0; turn < 10; ++turn) {
    expectAllWell(world(40, [&](Bootstrap& member) { member.barrier(); }));
  }
}

TEST(BootstrapLeave, TicksUntilItLeaves) {
  std::atomic<int> ticks = 0;
  expectAllWell(world(1, [&](Bootstrap& member) {
    const auto begin = std::chrono::steady_clock::now();
    member.startMonitor(
        {}, [&] { ++ticks; }, 5ms);
    while (ticks < 10 && std::chrono::steady_clock::now() - begin < 10s) std::this_thread::sleep_for(1ms);
    member.leave();
    const int atLeave = ticks;
    EXPECT_GE(atLeave, 10);
    EXPECT_LE(atLeave, (std::chrono::steady_clock::now() - begin) / 5ms + 1);
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(ticks.load(), atLeave);
  }));
}

TEST(BootstrapLeave, CollectivesAreRefusedOnceTheMonitorRuns) {
  expectAllWell(world(1, [&](Bootstrap& member) {
    member.startMonitor({});
    EXPECT_EQ(outcomeOf([&] { member.barrier(); }).result, moeInvalidUsage);
    EXPECT_EQ(outcomeOf([&] { member.startMonitor({}); }).result, moeInvalidUsage);
    member.leave();
    EXPECT_EQ(outcomeOf([&] { member.barrier(); }).result, moeInvalidUsage);
  }));
}

}  // namespace
}  // namespace moe::test
