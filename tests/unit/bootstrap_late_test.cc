// Late waits, and the rank that all ranks blame for them. Stopped ranks are child processes.
#include <fmt/format.h>

#include "bootstrap/group/failure.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using bootstrap::createUniqueId;

// Threads of one process. Each rank learns of each late wait in the 300 ms between a neighbour's silence and the
// verdict. So two processors, busy with other tests, must carry the square of this number of frames in that time.
constexpr int kManyRanks = 64;

void reportWait(Bootstrap& member, int awaited) {
  member.reportLateWait(awaited, moeTimeout, fmt::format("rank {}: rank {} did not come", member.rank(), awaited));
}

// A group with one rank that is stopped once all ranks watch. `body` runs on the others.
void withStopped(int victim, int nranks, const std::function<void(Bootstrap&, Reports&)>& body) {
  Children children(1, [&](int, const moeUniqueId_t& id, const auto& say) {
    auto member = Bootstrap::join(id, optionsOf(victim, nranks));
    member->startMonitor([](const auto&) {});
    say();
    std::this_thread::sleep_for(60s);
  });
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  Meet watching(nranks);
  Meet stopped(nranks);
  Meet over(nranks - 1);
  std::thread stopper([&] {
    children.awaitWord(0);
    watching.wait();
    children.stop(0);
    stopped.wait();
  });
  expectAllWell(inThreads(nranks - 1, [&](int i) {
    Reports reports;
    auto member = Bootstrap::join(id, optionsOf(i < victim ? i : i + 1, nranks));
    member->startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    stopped.wait();
    body(*member, reports);
    over.wait();
  }));
  stopper.join();
}

void expectVictimIsBlamed(int victim, int nranks) {
  withStopped(victim, nranks, [&](Bootstrap& member, Reports& reports) {
    const int next = (member.rank() + 1) % nranks;
    std::this_thread::sleep_for(std::chrono::milliseconds(member.rank() * 7 % 40));
    const auto start = Clock::now();
    reportWait(member, next != victim ? next : (next + 1) % nranks);
    EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << member.rank();
    EXPECT_LT(secondsSince(start), 2.0);
    const bootstrap::Failure first = reports.all().at(0);
    EXPECT_EQ(first.result, moeTimeout);
    EXPECT_TRUE(first.sentence.starts_with(fmt::format("rank {} does not answer, and rank ", victim)))
        << first.sentence;
  });
}

// The victims are those of bootstrap_failure_test.cc: an inner rank, a leaf below another one, the root.
class BootstrapStop : public testing::TestWithParam<int> {};

TEST_P(BootstrapStop, IsNamedByAllThoughEachWaitsForAnotherOne) {
  expectVictimIsBlamed(GetParam(), 40);
}

INSTANTIATE_TEST_SUITE_P(Positions, BootstrapStop, testing::Values(0, 1, 30));

TEST(BootstrapLate, AStoppedRankOfManyIsNamedByAll) {
  allowManyDescriptors();
  expectVictimIsBlamed(1, kManyRanks);
}

TEST(BootstrapLate, OneWaitIsEnoughForAllToLearnWhoIsStopped) {
  withStopped(30, 40, [](Bootstrap& member, Reports& reports) {
    if (member.rank() == 17) reportWait(member, 5);
    EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << member.rank();
    EXPECT_TRUE(reports.all().at(0).sentence.starts_with("rank 30 does not answer")) << reports.all()[0].sentence;
  });
}

TEST(BootstrapLate, WhoWaitedForTheStoppedRankHasTheBetterSentence) {
  withStopped(2, 4, [](Bootstrap& member, Reports& reports) {
    if (member.rank() != 1) reportWait(member, member.rank() == 0 ? 3 : 2);
    EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << member.rank();
    EXPECT_EQ(reports.all().at(0).sentence, "rank 3: rank 2 did not come");
  });
}

// All ranks live. `waits` has pairs (waiting rank, awaited rank) in the order of their reports, all within 300 ms.
void expectBlame(int nranks, const std::vector<std::pair<int, int>>& waits, const std::string& sentence) {
  Meet watching(nranks);
  Meet over(nranks);
  const auto start = Clock::now();
  expectAllWell(world(nranks, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].first != member.rank()) continue;
      std::this_thread::sleep_for(i * 300ms / waits.size());
      reportWait(member, waits[i].second);
    }
    EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << member.rank();
    EXPECT_EQ(reports.all().at(0).sentence, sentence) << "rank " << member.rank() << ", " << secondsSince(start);
    over.wait();
    member.leave();  // no reports come after this
  }));
}

TEST(BootstrapLate, WhenAllAnswerTheEndOfTheChainIsNamed) {
  expectBlame(20, {{4, 19}, {19, 2}, {2, 7}}, "rank 2: rank 7 did not come");
}

TEST(BootstrapLate, WhenAllAnswerAWaitWithoutAChainNamesWhomItWasFor) {
  expectBlame(3, {{1, 2}}, "rank 1: rank 2 did not come");
}

TEST(BootstrapLate, ARankAloneNamesItself) {
  expectBlame(1, {{0, 0}}, "rank 0: rank 0 did not come");
}

TEST(BootstrapLate, AChainOfManyRanksHasOneEnd) {
  allowManyDescriptors();
  std::vector<std::pair<int, int>> waits;
  for (int i = 0; i + 1 < kManyRanks; ++i) {
    const int rank = i * 5 % (kManyRanks - 1);  // each rank once, in no particular order
    waits.emplace_back(rank, rank + 1);
  }
  expectBlame(kManyRanks, waits, fmt::format("rank {}: rank {} did not come", kManyRanks - 2, kManyRanks - 1));
}

TEST(BootstrapLate, AFailureThatComesInBetweenIsTheAnswer) {
  Meet watching(20);
  Meet over(20);
  expectAllWell(world(20, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    if (member.rank() == 19) reportWait(member, 3);
    if (member.rank() == 18) {
      std::this_thread::sleep_for(100ms);
      member.announceFailure(moeCudaError, "the GPU fell off the bus");
    }
    std::this_thread::sleep_for(bootstrap::kVerdict + 200ms);
    const auto all = reports.all();
    EXPECT_EQ(all.size(), member.rank() == 18 ? 0U : 1U);
    for (const auto& failure : all) EXPECT_EQ(failure.sentence, "the GPU fell off the bus");
    over.wait();
    member.leave();  // no reports come after this
  }));
}

TEST(BootstrapLate, WhoLeavesFirstTellsTheAnswer) {
  Meet watching(4);
  expectAllWell(world(4, [&](Bootstrap& member) {
    Reports reports;
    member.startMonitor([&](const auto& failure) { reports.add(failure); });
    watching.wait();
    if (member.rank() == 3) {
      reportWait(member, 1);
      member.leave();
      EXPECT_EQ(reports.all().size(), 1U) << "the answer came before the end";
    } else {
      EXPECT_TRUE(reports.waitForOne(10s)) << "rank " << member.rank();
      EXPECT_EQ(reports.all().at(0).sentence, "rank 3: rank 1 did not come");
      member.leave();
    }
  }));
}

}  // namespace
}  // namespace moe::test
