// Groups that go on without ranks that have died or left (Bootstrap::recover with Losses::accepted). A rank that dies
// has a process of its own, which the test kills, and all other ranks are threads.
#include <fmt/format.h>

#include <random>

#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using bootstrap::createUniqueId;
using Losses = Bootstrap::Losses;

// Returns how the latest attempt has ended, after which recover() does not help.
Outcome recoverAndMeetOthers(Bootstrap& member, int turn, std::chrono::milliseconds timeout = 10s,
                             Losses losses = Losses::accepted) {
  member.holdMonitor(timeout);
  Outcome outcome;
  do {
    member.recover(moeAborted, "somebody recovers", losses);
    outcome = outcomeOf([&] {
      for (int i = 0; i < 3; ++i) meetOthers(member, turn + i);
    });
  } while (outcome.result != moeSuccess && member.mayRecover());
  member.releaseMonitor();
  return outcome;
}

bool waitForMore(Reports& reports, std::size_t seen) {
  const auto start = Clock::now();
  while (reports.all().size() <= seen && secondsSince(start) < 10) std::this_thread::sleep_for(1ms);
  return reports.all().size() > seen;
}

// Recovers until the group goes on without `victims`. A loss that comes after a recovery is reported to every rank.
void recoverWithout(Bootstrap& member, Reports& reports, const Ranks& victims, int turn) {
  const auto start = Clock::now();
  while (secondsSince(start) < 20) {
    const std::size_t seen = reports.all().size();
    const Outcome outcome = recoverAndMeetOthers(member, turn);
    EXPECT_EQ(outcome.result, moeSuccess) << "rank " << member.rank() << ": " << outcome.sentence;
    if (outcome.result != moeSuccess || member.lost() == victims) break;
    EXPECT_TRUE(waitForMore(reports, seen)) << "rank " << member.rank();
  }
  EXPECT_EQ(member.lost(), victims) << "rank " << member.rank();
}

// The survivors fail, and recover again. `from` survives.
void failAndRecoverAgain(Bootstrap& member, Reports& reports, const Ranks& victims, int from) {
  for (int turn = 0; turn < 3; ++turn) {
    const std::string why = fmt::format("rank {} fails in turn {}", from, turn);
    if (member.rank() == from) member.announceFailure(moeCudaError, why);
    EXPECT_TRUE(member.rank() == from || reports.waitFor(why, 10s)) << "rank " << member.rank() << " " << why;
    recoverWithout(member, reports, victims, turn);
  }
}

// The same after a late wait, for which the survivors find who is to blame.
void waitInVainAndRecoverAgain(Bootstrap& member, Reports& reports, const Ranks& victims, int from, int awaited) {
  const std::string why = fmt::format("rank {} is late for rank {}", awaited, from);
  if (member.rank() == from) member.reportLateWait(awaited, moeTimeout, why);
  EXPECT_TRUE(reports.waitFor(why, 10s)) << "rank " << member.rank() << " " << why;
  recoverWithout(member, reports, victims, 9);
}

void leaveTogether(Bootstrap& member) {
  const auto start = Clock::now();
  member.leave({0, member.nranks(), 20s});
  EXPECT_LT(secondsSince(start), 8.0) << "rank " << member.rank();
}

// A group with ranks that die. They join, start their monitors, and run `dying`, if it is set, until they are killed.
class Mortals {
 public:
  using Dying = std::function<void(Bootstrap&, Reports&)>;

  Mortals(int nranks, const Ranks& mortals, const Dying& dying = {})
      : nranks_(nranks),
        mortals_(mortals),
        children_(static_cast<int>(mortals.size()),
                  [=](int index, const moeUniqueId_t& id, const std::function<void()>& say) {
                    Reports reports;
                    auto member = Bootstrap::join(id, optionsOf(mortals[static_cast<std::size_t>(index)], nranks));
                    member->startMonitor([&](const auto& failure) { reports.add(failure); });
                    say();
                    if (dying) dying(*member, reports);
                    std::this_thread::sleep_for(60s);
                  }),
        watching_(nranks - static_cast<int>(mortals.size()) + 1) {}

  // Runs `body` in the ranks that live, and `reaper` in one more thread, when all ranks have joined.
  void run(const std::function<void(Children&)>& reaper, const std::function<void(Bootstrap&, Reports&)>& body) {
    const moeUniqueId_t id = createUniqueId(20s, "");
    children_.start(id);
    std::thread killer([&] {
      for (std::size_t i = 0; i < mortals_.size(); ++i) children_.awaitWord(static_cast<int>(i));
      watching_.wait();
      reaper(children_);
    });
    Ranks living;
    for (int rank = 0; rank < nranks_; ++rank) {
      if (!isAmong(mortals_, rank)) living.push_back(rank);
    }
    expectAllWell(inThreads(static_cast<int>(living.size()), [&](int i) {
      Reports reports;
      auto member = Bootstrap::join(id, optionsOf(living[static_cast<std::size_t>(i)], nranks_));
      member->startMonitor([&](const auto& failure) { reports.add(failure); });
      watching_.wait();
      body(*member, reports);
      leaveTogether(*member);
    }));
    killer.join();
  }

  // None of them sees the death of another one.
  void killAll(Children& children) const {
    for (std::size_t i = 0; i < mortals_.size(); ++i) children.stop(static_cast<int>(i));
    for (std::size_t i = 0; i < mortals_.size(); ++i) children.kill(static_cast<int>(i));
  }

 private:
  int nranks_;
  Ranks mortals_;
  Children children_;
  Meet watching_;
};

std::chrono::milliseconds drawDelay(std::mt19937& random, unsigned below) {
  return std::chrono::milliseconds(random() % below);
}

struct Deaths {
  int nranks;
  Ranks victims;
};

// The root; an inner rank; a leaf; the root and an inner rank; two hosts of eight ranks of which the first dies, so
// that the neighbours of most ranks die with them; the same below an inner rank; the last rank with its parent, and
// with all of its ancestors; all but the last; one of two; all inner ranks.
class BootstrapSurvivors : public testing::TestWithParam<Deaths> {};

TEST_P(BootstrapSurvivors, GoOn) {
  const auto& [nranks, victims] = GetParam();
  Mortals group(nranks, victims);
  int first = nranks - 1, last = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    if (isAmong(victims, rank)) continue;
    first = std::min(first, rank);
    last = rank;
  }
  group.run([&](Children& children) { group.killAll(children); },
            [&, victims = victims](Bootstrap& member, Reports& reports) {
              EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << member.rank();
              recoverWithout(member, reports, victims, 0);
              failAndRecoverAgain(member, reports, victims, first);
              waitInVainAndRecoverAgain(member, reports, victims, last, first);
            });
}

INSTANTIATE_TEST_SUITE_P(Cases, BootstrapSurvivors,
                         testing::Values(Deaths{4, {0}}, Deaths{40, {1}}, Deaths{40, {30}}, Deaths{40, {0, 1}},
                                         Deaths{16, {0, 1, 2, 3, 4, 5, 6, 7}}, Deaths{40, {1, 17, 39}},
                                         Deaths{4, {0, 3}}, Deaths{40, {0, 2, 39}}, Deaths{6, {0, 1, 2, 3, 4}},
                                         Deaths{2, {0}}, Deaths{2, {1}}, Deaths{60, {0, 1, 2, 3}}));

// Ranks die one after the other, at random times while the others recover, which come at different times.
TEST(BootstrapSurvivors, GoOnAfterDeathsWithinRecoveries) {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    const Ranks victims = seed % 2 == 0 ? Ranks{0, 1, 2, 17} : Ranks{0, 1, 17, 18, 30};
    constexpr int kRanks = 36;
    const auto dying = [&, seed](Bootstrap& member, Reports& reports) {
      std::mt19937 random(seed * 100 + static_cast<unsigned>(member.rank()));
      while (true) {
        std::this_thread::sleep_for(drawDelay(random, 10));
        if (!reports.all().empty()) recoverAndMeetOthers(member, 0);
      }
    };
    Mortals group(kRanks, victims, dying);
    group.run(
        [&](Children& children) {
          std::mt19937 random(seed);
          for (std::size_t i = 0; i < victims.size(); ++i) {
            children.kill(static_cast<int>(i));
            std::this_thread::sleep_for(drawDelay(random, 1 << (seed % 6)));
          }
        },
        [&](Bootstrap& member, Reports& reports) {
          std::mt19937 random(seed * 100 + static_cast<unsigned>(member.rank()));
          if (member.rank() % 3 != 0) {
            EXPECT_TRUE(reports.waitForOne(10s));
          }
          std::this_thread::sleep_for(drawDelay(random, 20));
          recoverWithout(member, reports, victims, 0);
          failAndRecoverAgain(member, reports, victims, 35);
        });
  }
}

// A rank kills itself at the first blobs of the generation that all others have begun or begin.
TEST(BootstrapSurvivors, GoOnIfInnerRanksDieWithBlobsOfOthers) {
  for (int turn = 0; turn < 8; ++turn) {
    const Ranks victims = turn % 2 == 0 ? Ranks{0, 1} : Ranks{0, 2};
    const auto dying = [&, turn](Bootstrap& member, Reports& reports) {
      if (member.rank() == 0) return;
      reports.waitForOne(10s);
      std::this_thread::sleep_for(std::chrono::milliseconds(turn));
      member.holdMonitor(20s);
      member.recover(moeAborted, "somebody recovers", Losses::accepted);
      if (turn % 4 < 2) outcomeOf([&] { meetOthers(member, 0); });
      ::kill(::getpid(), SIGKILL);
    };
    Mortals group(40, victims, dying);
    group.run([](Children& children) { children.kill(0); },
              [&](Bootstrap& member, Reports& reports) {
                EXPECT_TRUE(reports.waitForOne(10s));
                if (member.rank() % 2 == 0) std::this_thread::sleep_for(5ms);
                recoverWithout(member, reports, victims, 0);
              });
  }
}

// The same for goodbyes, which no rank reports as failures. Ranks that stay call `stay`. Each rank leaves or begins
// that at another time.
void worldWithout(const Ranks& leavers, unsigned seed, const std::function<void(Bootstrap&, Reports&)>& stay) {
  constexpr int kRanks = 40;
  Meet begun(kRanks);
  expectAllWell(world(kRanks, [&](Bootstrap& member) {
    Reports reports;
    std::mt19937 random(seed * 100 + static_cast<unsigned>(member.rank()));
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    begun.wait();
    std::this_thread::sleep_for(drawDelay(random, 30));
    if (isAmong(leavers, member.rank())) return member.leave();
    stay(member, reports);
    leaveTogether(member);
  }));
}

TEST(BootstrapSurvivors, GoOnAfterRanksHaveLeft) {
  for (unsigned seed = 1; seed <= 4; ++seed) {
    const Ranks leavers{0, 1, 20};
    worldWithout(leavers, seed, [&](Bootstrap& member, Reports& reports) {
      for (const int rank : leavers) {
        for (int i = 0; i < 2000 && !member.hasLeft(rank); ++i) std::this_thread::sleep_for(5ms);
      }
      recoverWithout(member, reports, leavers, 0);
      failAndRecoverAgain(member, reports, leavers, 39);
      if (seed == 1) waitInVainAndRecoverAgain(member, reports, leavers, 2, 39);
    });
  }
}

TEST(BootstrapSurvivors, GoOnIfRanksLeaveWithinARecovery) {
  for (unsigned seed = 1; seed <= 6; ++seed) {
    const Ranks leavers{0, 1, 20};
    worldWithout(leavers, seed, [&](Bootstrap& member, Reports& reports) {
      const auto start = Clock::now();
      while (member.lost() != leavers && secondsSince(start) < 20) {
        const Outcome outcome = recoverAndMeetOthers(member, 0);
        EXPECT_EQ(outcome.result, moeSuccess) << outcome.sentence;
        // Nobody reports a goodbye, but another rank that recovers.
        for (const int rank : leavers) {
          for (int i = 0; i < 2000 && !member.hasLeft(rank); ++i) std::this_thread::sleep_for(1ms);
        }
      }
      EXPECT_EQ(member.lost(), leavers);
      failAndRecoverAgain(member, reports, leavers, 39);
      if (seed == 1) waitInVainAndRecoverAgain(member, reports, leavers, 2, 39);
    });
  }
}

TEST(BootstrapSurvivors, RefuseTheNextLossUnlessItIsAcceptedToo) {
  const Ranks mortals{0, 2};
  Mortals group(5, mortals);
  Meet first(4), second(3), failed(3);
  group.run(
      [&](Children& children) {
        children.kill(0);
        first.wait();
        children.kill(1);
      },
      [&](Bootstrap& member, Reports& reports) {
        // Rank 2 does not come, so the others try in vain, with the same words.
        EXPECT_TRUE(reports.waitForOne(10s));
        const Outcome outcome = recoverAndMeetOthers(member, 0, 1200ms);
        EXPECT_EQ(outcome.result, moeTimeout) << outcome.sentence;
        EXPECT_EQ(outcome.sentence, "rank 2 did not complete the test within 1200 ms");
        EXPECT_EQ(member.lost(), Ranks{0});
        first.wait();
        EXPECT_TRUE(reports.waitForOne(10s));
        const auto start = Clock::now();
        const auto diedTwo = [&] {
          const auto all = reports.all();
          return std::any_of(all.begin(), all.end(), [](const auto& f) { return f.rank == 2 && f.death; });
        };
        while (!diedTwo() && secondsSince(start) < 10) std::this_thread::sleep_for(2ms);
        EXPECT_TRUE(diedTwo());
        second.wait();
        const Outcome refused = recoverAndMeetOthers(member, 1, 20s, Losses::refused);
        EXPECT_EQ(refused.result, moeRemoteError);
        EXPECT_TRUE(refused.sentence.starts_with("rank 2 (")) << refused.sentence;
        EXPECT_EQ(member.lost(), Ranks{0});
        failed.wait();
        recoverWithout(member, reports, mortals, 2);
      });
}

// Ranks that gave up do not begin again, but a rank that calls recover() later does.
TEST(BootstrapSurvivors, KnowWhetherRecoveryHelps) {
  Meet gaveUp(4), again(4);
  expectAllWell(world(4, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    if (member.rank() != 1) {
      const Outcome outcome = recoverAndMeetOthers(member, 0, 300ms);
      EXPECT_EQ(outcome.result, moeTimeout);
      member.holdMonitor(300ms);
      EXPECT_FALSE(member.mayRecover());
      member.releaseMonitor();
    }
    gaveUp.wait();
    EXPECT_EQ(recoverAndMeetOthers(member, 1).result, moeSuccess);
    again.wait();
    if (member.rank() == 3) {  // begins again in the generation in which the others wait
      std::this_thread::sleep_for(100ms);
      member.holdMonitor(20s);
      member.recover(moeAborted, "first", Losses::accepted);
      member.recover(moeAborted, "second", Losses::accepted);
      member.recover(moeAborted, "third", Losses::accepted);
      member.releaseMonitor();
    }
    EXPECT_EQ(recoverAndMeetOthers(member, 2).result, moeSuccess);
    leaveTogether(member);
  }));
}

// The ranks below a rank that does not come are not named.
TEST(BootstrapSurvivors, NameOnlyRanksThatDoNotCome) {
  Meet over(40);
  expectAllWell(world(40, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    if (member.rank() != 1) {
      const Outcome outcome = recoverAndMeetOthers(member, 0, 1500ms);
      EXPECT_EQ(outcome.sentence, "rank 1 did not complete the test within 1500 ms") << member.rank();
    }
    over.wait();
    EXPECT_EQ(recoverAndMeetOthers(member, 1).result, moeSuccess);
    leaveTogether(member);
  }));
}

// Far more generations than their numbers distinguish, and ranks that die on the way.
TEST(BootstrapSurvivors, RecoverOftenWithoutHoldingMore) {
  const Ranks victims{0};
  Mortals group(6, victims);
  group.run([&](Children& children) { group.killAll(children); },
            [&](Bootstrap& member, Reports& reports) {
              EXPECT_TRUE(reports.waitForOne(10s));
              for (int turn = 0; turn < 300; ++turn) recoverWithout(member, reports, victims, turn);
            });
}

}  // namespace
}  // namespace moe::test
