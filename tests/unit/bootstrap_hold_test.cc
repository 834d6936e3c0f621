// Collectives after startMonitor, while the monitor rests (holdMonitor).
#include <fcntl.h>
#include <sys/mman.h>

#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

// Some ranks come late, so that blobs reach ranks whose monitor still runs.
void comeLate(int rank, int turn) {
  if ((rank + turn) % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds((rank + turn) % 7 * 3));
}

TEST(BootstrapHold, CollectivesRunWhileTheMonitorRests) {
  expectAllWell(world(40, [&](Bootstrap& member) {
    member.startMonitor([](const auto& failure) { ADD_FAILURE() << failure.sentence; });
    for (int turn = 0; turn < 6; ++turn) {
      comeLate(member.rank(), turn);
      member.holdMonitor(20s);
      const std::uint8_t mine = static_cast<std::uint8_t>(member.rank() + turn);
      const auto all = member.allGather({&mine, 1});
      for (int rank = 0; rank < member.nranks(); ++rank) {
        EXPECT_EQ(all.at(static_cast<std::size_t>(rank)).at(0), static_cast<std::uint8_t>(rank + turn));
      }
      member.barrier();
      member.releaseMonitor();
      EXPECT_EQ(outcomeOf([&] { member.barrier(); }).result, moeInvalidUsage);
    }
  }));
}

TEST(BootstrapHold, DescriptorsPassWhileTheMonitorRests) {
  expectAllWell(world(5, [&](Bootstrap& member) {
    member.startMonitor([](const auto& failure) { ADD_FAILURE() << failure.sentence; });
    for (int turn = 0; turn < 3; ++turn) {
      comeLate(member.rank(), turn);
      member.holdMonitor(20s);
      const int value = 100 * turn + member.rank();
      const Fd mine(::memfd_create("moecomm-test", MFD_CLOEXEC));
      EXPECT_EQ(::pwrite(mine.get(), &value, sizeof value, 0), static_cast<ssize_t>(sizeof value));
      member.serveFd(mine.get());
      member.barrier();
      for (int rank = 0; rank < member.nranks(); ++rank) {
        int theirs = -1;
        const Fd fd = member.fetchFdFrom(rank, Deadline::after(10s));
        EXPECT_EQ(::pread(fd.get(), &theirs, sizeof theirs, 0), static_cast<ssize_t>(sizeof theirs));
        EXPECT_EQ(theirs, 100 * turn + rank);
      }
      member.barrier();
      member.releaseMonitor();
    }
  }));
}

TEST(BootstrapHold, NobodyCallsBackMeanwhile) {
  std::atomic<int> ticks = 0;
  const auto tickOn = [&] {
    const int before = ticks;
    const auto begin = Clock::now();
    while (ticks < before + 3 && Clock::now() - begin < 10s) std::this_thread::sleep_for(1ms);
    return ticks >= before + 3;
  };
  expectAllWell(world(1, [&](Bootstrap& member) {
    member.startMonitor(
        {}, [&] { ++ticks; }, 5ms);
    EXPECT_TRUE(tickOn());
    member.holdMonitor(20s);
    const int held = ticks;
    std::this_thread::sleep_for(40ms);
    EXPECT_EQ(ticks, held);
    member.releaseMonitor();
    EXPECT_TRUE(tickOn());
  }));
}

TEST(BootstrapHold, IsRefusedInACallback) {
  std::atomic<int> refused = 0;
  std::atomic<bool> started = false;  // the monitor's thread runs before startMonitor returns
  expectAllWell(world(1, [&](Bootstrap& member) {
    const auto hold = [&] { refused += outcomeOf([&] { member.holdMonitor(20s); }).result == moeInvalidUsage ? 1 : 0; };
    member.startMonitor(
        {},
        [&] {
          if (started) hold();
        },
        5ms);
    started = true;
    const auto begin = Clock::now();
    while (refused < 2 && Clock::now() - begin < 10s) std::this_thread::sleep_for(1ms);
    member.leave();
    EXPECT_GE(refused, 2);
  }));
}

TEST(BootstrapHold, ARankThatDoesNotComeIsNamedWithTheTimeoutOfThatTime) {
  Meet over(3);
  const auto outcomes = world(3, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    if (member.rank() != 2) {
      member.holdMonitor(1200ms);
      const Outcome outcome = outcomeOf([&] { member.allGather({}, "the test"); });
      EXPECT_EQ(outcome.result, moeTimeout);
      EXPECT_TRUE(outcome.sentence.starts_with("rank 2 did not complete the test within 1200 ms")) << outcome.sentence;
      member.releaseMonitor();
    } else {
      EXPECT_TRUE(reports.waitForOne(10s));  // its monitor runs
    }
    over.wait();
    member.leave();  // the monitor uses what is here
  });
  expectAllWell(outcomes);
}

TEST(BootstrapHold, AFailureInBetweenEndsTheCollectiveAndIsReportedAfterwards) {
  Meet over(4);
  expectAllWell(world(4, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    if (member.rank() == 3) {
      std::this_thread::sleep_for(50ms);
      member.announceFailure(moeAborted, "rank 3 wants no more");
    } else {
      member.holdMonitor(20s);
      const Outcome outcome = outcomeOf([&] { member.barrier(); });
      EXPECT_EQ(outcome.result, moeAborted);
      EXPECT_EQ(outcome.sentence, "rank 3 wants no more");
      EXPECT_TRUE(reports.all().empty());
      member.releaseMonitor();
      EXPECT_TRUE(reports.waitForOne(10s));
      EXPECT_EQ(reports.all()[0].sentence, "rank 3 wants no more");
    }
    over.wait();
    member.leave();  // the monitor uses what is here
  }));
}

TEST(BootstrapHold, ARankThatLeavesMeanwhileIsNamed) {
  Meet over(2);
  expectAllWell(world(3, [&](Bootstrap& member) {
    member.startMonitor({});
    if (member.rank() == 1) return member.leave();
    member.holdMonitor(20s);
    const Outcome outcome = outcomeOf([&] { member.allGather({}, "the test"); });
    EXPECT_EQ(outcome.result, moeRemoteError);
    EXPECT_EQ(outcome.sentence, "rank 1 left the group before the test was done");
    member.releaseMonitor();
    over.wait();
    member.leave();  // the monitor uses what is here
  }));
}

}  // namespace
}  // namespace moe::test
