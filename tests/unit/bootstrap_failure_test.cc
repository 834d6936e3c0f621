// Ranks that die, fail or leave: who notices, how fast, and with which sentence. Ranks that are killed are child
// processes.
#include <fcntl.h>
#include <fmt/format.h>

#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using bootstrap::createUniqueId;

// A child joins as `rank`, tells the parent that it has joined, and waits until the parent kills it.
Children::Body joinAndWait(int rank, int nranks) {
  return [=](int, const moeUniqueId_t& id, const std::function<void()>& say) {
    auto member = Bootstrap::join(id, optionsOf(rank, nranks));
    say();
    std::this_thread::sleep_for(60s);
  };
}

// Redirects standard error to a full device while it lives.
class OnAFullDisk {
 public:
  OnAFullDisk() : before_(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) {
    const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(::dup2(full.get(), STDERR_FILENO), STDERR_FILENO);
  }
  ~OnAFullDisk() { ::dup2(before_.get(), STDERR_FILENO); }
  OnAFullDisk(const OnAFullDisk&) = delete;
  OnAFullDisk& operator=(const OnAFullDisk&) = delete;

 private:
  Fd before_;
};

TEST(BootstrapFailure, ADeathWhileJoiningIsNoticedAtOnceAndNamed) {
  Children children(1, [](int, const moeUniqueId_t& id, const auto&) { Bootstrap::join(id, optionsOf(2, 4)); });
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  const auto start = Clock::now();
  std::thread killer([&] {
    std::this_thread::sleep_for(400ms);
    children.kill(0);
  });
  const auto outcomes = inThreads(2, [&](int rank) { Bootstrap::join(id, optionsOf(rank, 4)); });
  killer.join();
  EXPECT_LT(secondsSince(start), 2.0);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, moeRemoteError);
    EXPECT_NE(outcome.sentence.find("rank 2 ("), std::string::npos) << outcome.sentence;
  }
}

TEST(BootstrapFailure, TheEndOfTheProcessThatServesTheIdIsNoticed) {
  int toParent[2];
  ASSERT_EQ(::pipe(toParent), 0);
  Children children(1, [&](int, const moeUniqueId_t&, const auto&) {
    const moeUniqueId_t id = createUniqueId(20s, "");
    (void)!::write(toParent[1], &id, sizeof(id));
    std::this_thread::sleep_for(60s);
  });
  children.start({});
  moeUniqueId_t id{};
  ASSERT_EQ(::read(toParent[0], &id, sizeof(id)), static_cast<ssize_t>(sizeof(id)));
  const auto start = Clock::now();
  std::thread killer([&] {
    std::this_thread::sleep_for(300ms);
    children.kill(0);
  });
  const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(0, 2)); });
  killer.join();
  ::close(toParent[0]);
  ::close(toParent[1]);
  EXPECT_EQ(outcome.result, moeRemoteError);
  EXPECT_NE(outcome.sentence.find("the process that serves the unique id has ended"), std::string::npos)
      << outcome.sentence;
  EXPECT_LT(secondsSince(start), 2.0);
}

// Even if the log line cannot be written, the other ranks learn of the death first, and the monitor goes on.
TEST(BootstrapFailure, ADeathIsNamedByRanksWhoseDiskIsFull) {
  Children children(1, joinAndWait(2, 4));
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  const OnAFullDisk standardError;
  Meet watching(4);
  std::thread killer([&] {
    children.awaitWord(0);
    watching.wait();
    children.kill(0);
  });
  Meet over(3);
  expectAllWell(inThreads(3, [&](int i) {
    const int rank = i < 2 ? i : 3;
    const Log log({}, rank, 4);
    bootstrap::Options options = optionsOf(rank, 4);
    options.log = &log;
    Reports reports;
    auto member = Bootstrap::join(id, options);
    member->startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << rank;
    for (const auto& failure : reports.all()) {
      EXPECT_EQ(failure.rank, 2);
      EXPECT_NE(failure.sentence.find("has died: its connection to rank 0 closed without a goodbye"), std::string::npos)
          << failure.sentence;
    }
    over.wait();
  }));
  killer.join();
}

TEST(BootstrapFailure, ADeathIsHeardOfWhileARankDoesSomethingElse) {
  Children children(1, joinAndWait(2, 3));
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  std::thread killer([&] {
    children.awaitWord(0);
    std::this_thread::sleep_for(200ms);
    children.kill(0);
  });
  const auto start = Clock::now();
  const auto outcomes = inThreads(2, [&](int rank) {
    const auto member = Bootstrap::join(id, optionsOf(rank, 3));
    while (secondsSince(start) < 10) {
      member->throwIfBroken("the work");
      std::this_thread::sleep_for(5ms);
    }
  });
  killer.join();
  EXPECT_LT(secondsSince(start), 5.0);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, moeRemoteError);
    EXPECT_NE(outcome.sentence.find("rank 2 ("), std::string::npos) << outcome.sentence;
  }
}

// 40 ranks. The dead one is an inner rank (1), a leaf below another one (30), or the root.
class BootstrapDeath : public testing::TestWithParam<int> {};

TEST_P(BootstrapDeath, InsideAnAllGatherIsNamedByEveryRank) {
  const int victim = GetParam();
  Children children(1, joinAndWait(victim, 40));
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  const auto start = Clock::now();
  std::thread killer([&] {
    children.awaitWord(0);
    std::this_thread::sleep_for(300ms);
    children.kill(0);
  });
  const auto outcomes = inThreads(39, [&](int i) {
    auto member = Bootstrap::join(id, optionsOf(i < victim ? i : i + 1, 40));
    member->allGather({});
  });
  killer.join();
  EXPECT_LT(secondsSince(start), 5.0);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, moeRemoteError);
    EXPECT_TRUE(outcome.sentence.starts_with(fmt::format("rank {} (", victim))) << outcome.sentence;
  }
}

TEST_P(BootstrapDeath, IsReportedByEveryMonitor) {
  const int victim = GetParam();
  Children children(1, [&](int, const moeUniqueId_t& id, const auto& say) {
    auto member = Bootstrap::join(id, optionsOf(victim, 40));
    member->startMonitor([](const auto&) {});
    say();
    std::this_thread::sleep_for(60s);
  });
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  Meet watching(40);
  Meet over(39);
  std::atomic<std::int64_t> killedAtMs = 0;
  std::atomic<std::int64_t> slowestMs = 0;
  const auto nowMs = [] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
  };
  std::thread killer([&] {
    children.awaitWord(0);
    watching.wait();
    killedAtMs = nowMs();
    children.kill(0);
  });
  expectAllWell(inThreads(39, [&](int i) {
    Reports reports;
    auto member = Bootstrap::join(id, optionsOf(i < victim ? i : i + 1, 40));
    member->startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    EXPECT_TRUE(reports.waitForOne(5s)) << "rank " << member->rank();
    const std::int64_t took = nowMs() - killedAtMs.load();
    if (took > slowestMs) slowestMs = took;
    std::this_thread::sleep_for(100ms);
    for (const auto& failure : reports.all()) {
      EXPECT_EQ(failure.rank, victim) << failure.sentence;
      EXPECT_EQ(failure.result, moeRemoteError);
      EXPECT_TRUE(failure.sentence.starts_with(fmt::format("rank {} (", victim))) << failure.sentence;
    }
    EXPECT_EQ(reports.all().size(), 1U);
    EXPECT_FALSE(member->hasLeft(victim));
    over.wait();
  }));
  killer.join();
  EXPECT_LT(slowestMs.load(), 2000);
}

INSTANTIATE_TEST_SUITE_P(Positions, BootstrapDeath, testing::Values(0, 1, 30));

// Without a monitor, a later failure of that rank could not be reported.
TEST(BootstrapFailure, AMonitorWithoutMemoryTellsTheOthers) {
  Meet watching(3);
  Meet over(3);
  expectAllWell(world(3, [&](Bootstrap& member) {
    Reports reports;
    std::atomic<bool> noMemory = false;
    const auto tick = [&] {
      if (noMemory) throw std::bad_alloc();
    };
    member.startMonitor([&](const auto& failure) { reports.add(failure); }, tick);
    watching.wait();
    noMemory = member.rank() == 1;
    EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << member.rank();
    over.wait();
    ASSERT_EQ(reports.all().size(), 1U);
    EXPECT_EQ(reports.all()[0].rank, 1);
    EXPECT_EQ(reports.all()[0].result, moeSystemError);
    EXPECT_EQ(reports.all()[0].sentence, "rank 1: its monitor has failed: out of host memory");
  }));
}

TEST(BootstrapFailure, TwoDeathsAtOnceReachEveryRank) {
  Children children(2, [](int index, const moeUniqueId_t& id, const auto& say) {
    auto member = Bootstrap::join(id, optionsOf(index, 40));  // the root, and one of its children that has children
    member->startMonitor([](const auto&) {});
    say();
    std::this_thread::sleep_for(60s);
  });
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  Meet watching(39);
  Meet over(38);
  std::thread killer([&] {
    children.awaitWord(0);
    children.awaitWord(1);
    watching.wait();
    children.kill(0);
    children.kill(1);
  });
  expectAllWell(inThreads(38, [&](int i) {
    Reports reports;
    auto member = Bootstrap::join(id, optionsOf(i + 2, 40));
    member->startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    EXPECT_TRUE(reports.waitForOne(5s)) << "rank " << member->rank();
    for (const auto& failure : reports.all()) EXPECT_LT(failure.rank, 2) << failure.sentence;
    over.wait();
  }));
  killer.join();
}

// The victim may be killed at any point while it joins. Whatever the other ranks do at that time, they name it.
TEST(BootstrapFailure, ADeathAtAnyMomentOfTheWayInIsNamed) {
  constexpr int kRanks = 8;
  for (const int victim : {0, 3}) {
    for (int delayMs = 0; delayMs < 24; delayMs += 2) {
      Children children(1, [&](int, const moeUniqueId_t& id, const auto&) {
        auto member = Bootstrap::join(id, optionsOf(victim, kRanks, 1500ms));
        for (int i = 0; i < 20; ++i) member->allGather({});
        member->startMonitor([](const auto&) {});
        std::this_thread::sleep_for(60s);
      });
      const moeUniqueId_t id = createUniqueId(20s, "");
      children.start(id);
      std::thread killer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(delayMs));
        children.kill(0);
      });
      Meet over(kRanks - 1);
      inThreads(kRanks - 1, [&](int i) {
        Reports reports;
        std::unique_ptr<Bootstrap> member;
        const Outcome outcome = outcomeOf([&] {
          member = Bootstrap::join(id, optionsOf(i < victim ? i : i + 1, kRanks, 1500ms));
          for (int k = 0; k < 20; ++k) member->allGather({});
          member->startMonitor([&](const auto& failure) { reports.add(failure); });
          EXPECT_TRUE(reports.waitForOne(5s));
        });
        over.wait();
        std::string sentence = outcome.sentence;
        if (sentence.empty() && !reports.all().empty()) sentence = reports.all()[0].sentence;
        EXPECT_TRUE(sentence.starts_with(fmt::format("rank {} ", victim)))
            << "killed after " << delayMs << " ms: " << sentence;
      });
      killer.join();
    }
  }
}

TEST(BootstrapFailure, AnAnnouncementReachesAllRanksInTheWordsOfTheAnnouncer) {
  for (const int announcer : {0, 1, 39}) {
    Meet watching(40);
    Meet over(40);
    expectAllWell(world(40, [&](Bootstrap& member) {
      Reports reports;
      member.startMonitor([&](const auto& failure) { reports.add(failure); });
      watching.wait();
      if (member.rank() == announcer) {
        member.announceFailure(moeCudaError, "the GPU fell off the bus");
      } else {
        EXPECT_TRUE(reports.waitForOne(5s)) << "rank " << member.rank();
      }
      over.wait();
      const auto all = reports.all();
      ASSERT_EQ(all.size(), member.rank() == announcer ? 0U : 1U);
      if (all.empty()) return;
      EXPECT_EQ(all[0].rank, announcer);
      EXPECT_EQ(all[0].result, moeCudaError);
      EXPECT_EQ(all[0].sentence, "the GPU fell off the bus");
    }));
  }
}

TEST(BootstrapFailure, AnAnnouncementEndsTheCollectivesOfAllRanks) {
  const auto outcomes = world(20, [&](Bootstrap& member) {
    if (member.rank() != 19) return member.barrier();
    std::this_thread::sleep_for(100ms);
    member.announceFailure(moeCudaError, "out of device memory");
    member.leave();
  });
  for (int rank = 0; rank < 19; ++rank) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].result, moeCudaError);
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].sentence, "out of device memory");
  }
}

TEST(BootstrapFailure, AnAnnouncementOfAnotherThreadEndsThisRanksCollective) {
  const auto outcomes = world(2, [&](Bootstrap& member) {
    if (member.rank() == 1) {
      std::this_thread::sleep_for(300ms);
      return;
    }
    std::thread other([&] {
      std::this_thread::sleep_for(50ms);
      member.announceFailure(moeAborted, "aborted");
    });
    const Outcome outcome = outcomeOf([&] { member.barrier(); });
    other.join();
    EXPECT_EQ(outcome.result, moeAborted);
  });
  expectAllWell(outcomes);
}

TEST(BootstrapFailure, ALongSentenceIsCut) {
  Meet over(2);
  expectAllWell(world(2, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    if (member.rank() == 0) {
      member.announceFailure(moeCudaError, std::string(100000, 'x'));
    } else {
      EXPECT_TRUE(reports.waitForOne(5s));
      EXPECT_EQ(reports.all()[0].sentence, std::string(1024, 'x'));
    }
    over.wait();
  }));
}

TEST(BootstrapFailure, LeavingDuringTheCollectivesOfOthersIsNamed) {
  const auto outcomes = world(20, [&](Bootstrap& member) {
    if (member.rank() == 1) return;
    member.barrier();
  });
  for (int rank = 0; rank < 20; ++rank) {
    if (rank == 1) continue;
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].result, moeRemoteError);
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].sentence, "rank 1 left the group before the barrier was done");
  }
}

}  // namespace
}  // namespace moe::test
