// New processes that take the numbers of lost ranks (Bootstrap::awaitNewcomer, joinAsNewcomer, takeIn). All ranks are
// threads. A rank that is lost has left, or a child process was killed.
#include <fmt/format.h>

#include <barrier>
#include <random>

#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using bootstrap::createUniqueId;
using bootstrap::Newcomer;
using Bytes = std::vector<std::uint8_t>;

constexpr const char* kWhat = "the test";

void meetInAdmission(Bootstrap& member) {
  for (int i = 0; i < 3; ++i) meetOthers(member, 100 + i);
}

// What a communicator does: it settles, takes newcomers in, and gives them up if that fails. The last outcome.
Outcome recoverOnce(Bootstrap& member, std::chrono::milliseconds timeout = 10s) {
  member.holdMonitor(timeout);
  Outcome outcome;
  bool again = true;
  while (again) {
    member.setTimeout(timeout);
    member.recover(moeAborted, "somebody recovers", Bootstrap::Losses::accepted);
    std::vector<Newcomer> newcomers;
    outcome = outcomeOf([&] {
      meetOthers(member, 0);
      newcomers = member.gatherNewcomers(kWhat);
    });
    again = outcome.result != moeSuccess && member.mayRecover();
    if (outcome.result != moeSuccess || newcomers.empty()) continue;
    const std::vector<bootstrap::HostIdentity> processes(newcomers.size(), bootstrap::HostIdentity::current());
    const Bytes table{7, 8, 9};
    outcome = outcomeOf([&] {
      member.setTimeout(timeout / 4);
      member.takeIn(newcomers, processes, table, kWhat);
      meetInAdmission(member);
    });
    if (outcome.result == moeSuccess) continue;
    for (const Newcomer& newcomer : newcomers) member.giveUp(newcomer.rank, "given up: " + outcome.sentence);
    again = true;
  }
  member.releaseMonitor();
  return outcome;
}

void recoverUntilLost(Bootstrap& member, const Ranks& lost, std::chrono::milliseconds timeout = 10s) {
  const auto start = Clock::now();
  do {
    const Outcome outcome = recoverOnce(member, timeout);
    ASSERT_EQ(outcome.result, moeSuccess) << "rank " << member.rank() << ": " << outcome.sentence;
  } while (member.lost() != lost && secondsSince(start) < 20);
  EXPECT_EQ(member.lost(), lost) << "rank " << member.rank();
}

moeUniqueId_t issue(
    Bootstrap& member, int rank, bootstrap::CheckNewcomer check = [](auto) {}) {
  member.holdMonitor(10s);
  moeUniqueId_t id{};
  const Outcome outcome = outcomeOf([&] { id = member.awaitNewcomer(rank, "", std::move(check)); });
  EXPECT_EQ(outcome.result, moeSuccess) << outcome.sentence;
  member.releaseMonitor();
  return id;
}

// A newcomer that the survivors take in.
std::unique_ptr<Bootstrap> comeIn(const moeUniqueId_t& id, int rank, int nranks, Reports& reports) {
  Bytes table;
  const Bytes card{1, 2};
  auto member = Bootstrap::joinAsNewcomer(id, optionsOf(rank, nranks), card, &table);
  EXPECT_EQ(table, (Bytes{7, 8, 9}));
  meetInAdmission(*member);
  member->startMonitor([&](const auto& failure) { reports.add(failure); });
  return member;
}

void failTogether(Bootstrap& member, Reports& reports, int from, int turn) {
  const std::string why = fmt::format("rank {} fails in turn {}", from, turn);
  if (member.rank() == from) member.announceFailure(moeCudaError, why);
  EXPECT_TRUE(member.rank() == from || reports.waitFor(why, 10s)) << "rank " << member.rank() << " " << why;
}

// Ranks as threads. In each turn some leave, the others go on without them, and new ones take their numbers.
class Changing {
 public:
  explicit Changing(int nranks) : nranks_(nranks), ids_(static_cast<std::size_t>(nranks)), all_(nranks) {}

  void run(const std::vector<Ranks>& turns) {
    const moeUniqueId_t id = createUniqueId(20s, "");
    expectAllWell(inThreads(nranks_, [&](int rank) {
      auto reports = std::make_unique<Reports>();
      auto member = Bootstrap::join(id, optionsOf(rank, nranks_));
      member->startMonitor([r = reports.get()](const auto& failure) { r->add(failure); });
      int turn = 0;
      for (const Ranks& victims : turns) {
        all_.arrive_and_wait();
        if (isAmong(victims, rank)) {
          member.reset();
          all_.arrive_and_wait();  // the others have issued ids
          reports = std::make_unique<Reports>();
          member = comeIn(ids_[static_cast<std::size_t>(rank)], rank, nranks_, *reports);
          if (!member->lost().empty()) recoverUntilLost(*member, {});  // others were too late
        } else {
          recoverUntilLost(*member, victims);
          issueFor(*member, victims);
          all_.arrive_and_wait();
          recoverUntilLost(*member, {});
        }
        all_.arrive_and_wait();
        failTogether(*member, *reports, turn % nranks_, turn);
        recoverUntilLost(*member, {});
        ++turn;
      }
      all_.arrive_and_wait();
    }));
  }

 private:
  // Each loss has another sponsor.
  void issueFor(Bootstrap& member, const Ranks& victims) {
    Ranks living;
    for (int rank = 0; rank < nranks_; ++rank) {
      if (!isAmong(victims, rank)) living.push_back(rank);
    }
    for (std::size_t i = 0; i < victims.size(); ++i) {
      if (living[(i + 1) % living.size()] != member.rank()) continue;
      ids_[static_cast<std::size_t>(victims[i])] = issue(member, victims[i]);
    }
  }

  int nranks_;
  std::vector<moeUniqueId_t> ids_;
  std::barrier<> all_;
};

// The root, a leaf, one of two, an inner rank, the last one, several at once, all but one.
TEST(BootstrapReplace, NewcomersTakeTheNumbersOfRanksThatHaveLeft) {
  Changing(4).run({{0}, {3}, {0, 1}, {1, 2, 3}, {0, 1, 2}});
  Changing(2).run({{0}, {1}, {0}});
  Changing(40).run({{1}, {0, 1, 17}, {39}, {0, 2, 3, 4, 5, 6, 7, 8, 30}});
}

TEST(BootstrapReplace, AHundredTimes) {
  std::mt19937 random(1);
  std::vector<Ranks> turns;
  for (int i = 0; i < 100; ++i) turns.push_back({static_cast<int>(random() % 5)});
  Changing(5).run(turns);
}

// Rank 2 of three leaves. When the others go on without it and rank 0 has issued an id, `survivor` runs in these, and
// `newcomer` in a thread that may take its place.
void loseRank2(
    const std::function<void(Bootstrap&, const moeUniqueId_t&)>& survivor,
    const std::function<void(const moeUniqueId_t&)>& newcomer, bootstrap::CheckNewcomer check = [](auto) {}) {
  const moeUniqueId_t id = createUniqueId(20s, "");
  moeUniqueId_t place{};
  std::barrier all(3);
  expectAllWell(inThreads(3, [&](int rank) {
    Reports reports;
    auto member = Bootstrap::join(id, optionsOf(rank, 3));
    member->startMonitor([&](const auto& failure) { reports.add(failure); });
    all.arrive_and_wait();
    if (rank == 2) {
      member.reset();
      all.arrive_and_wait();
      newcomer(place);
      all.arrive_and_wait();
    } else {
      recoverUntilLost(*member, {2});
      if (rank == 0) place = issue(*member, 2, check);
      all.arrive_and_wait();
      survivor(*member, place);
      all.arrive_and_wait();
      recoverUntilLost(*member, {2});
      all.arrive_and_wait();
      return;
    }
    all.arrive_and_wait();
  }));
}

void expectRefusal(const moeUniqueId_t& id, int rank, int nranks, moeResult_t result, const std::string& sentence,
                   std::chrono::milliseconds timeout = 20s) {
  Bytes table;
  const Bytes card{1, 2};
  const Outcome outcome =
      outcomeOf([&] { Bootstrap::joinAsNewcomer(id, optionsOf(rank, nranks, timeout), card, &table); });
  EXPECT_EQ(outcome.result, result) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find(sentence), std::string::npos) << outcome.sentence;
}

TEST(BootstrapReplace, ANewcomerThatDoesNotFitIsToldAtOnce) {
  const auto check = [](std::span<const std::uint8_t> card) {
    EXPECT_EQ(Bytes(card.begin(), card.end()), (Bytes{1, 2}));
    throw Error(moeInvalidUsage, "the card is wrong");
  };
  loseRank2([](auto&, const auto&) {},
            [](const moeUniqueId_t& id) {
              expectRefusal(id, 1, 3, moeInvalidUsage, "rank is 1, but the id is for the place of rank 2");
              expectRefusal(id, 2, 4, moeInvalidUsage, "nranks is 4, but the id is for a group of 3 ranks");
              expectRefusal(id, 2, 3, moeInvalidUsage, "the card is wrong");
            },
            check);
}

TEST(BootstrapReplace, ANewcomerThatNobodyTakesInGivesUpAndTheIdStaysGood) {
  loseRank2([](auto&, const auto&) {},
            [](const moeUniqueId_t& id) {
              for (int i = 0; i < 2; ++i) {
                expectRefusal(id, 2, 3, moeTimeout, "the group has not taken this process in within 300 ms", 300ms);
              }
            });
}

TEST(BootstrapReplace, OneProcessWaitsAndALaterIdReplacesTheEarlierOne) {
  Meet waiting(2);
  loseRank2(
      [&](Bootstrap& member, const moeUniqueId_t&) {
        if (member.rank() != 0) return;
        waiting.wait();
        std::this_thread::sleep_for(200ms);
        issue(member, 2);
      },
      [&](const moeUniqueId_t& id) {
        std::thread first([&] { expectRefusal(id, 2, 3, moeRemoteError, "has issued another id for this place"); });
        std::this_thread::sleep_for(100ms);
        expectRefusal(id, 2, 3, moeInvalidUsage, "another process waits for the place of rank 2");
        waiting.wait();
        first.join();
        expectRefusal(id, 2, 3, moeRemoteError, "nobody listens at");
      });
}

TEST(BootstrapReplace, RanksThatLiveAreNotReplaced) {
  expectAllWell(world(3, [](Bootstrap& member) {
    member.startMonitor({});
    member.holdMonitor(10s);
    const Outcome outcome = outcomeOf([&] { member.awaitNewcomer(1, "", [](auto) {}); });
    EXPECT_EQ(outcome.result, moeInvalidUsage);
    EXPECT_EQ(outcome.sentence, "rank 1 has neither died nor left");
    member.barrier();
    member.releaseMonitor();
  }));
}

// It leaves, dies, or hangs when it has been taken in, before or within the collectives of the admission.
TEST(BootstrapReplace, SurvivorsGoOnWithoutANewcomerThatEndsWithinItsAdmission) {
  for (int meetings = 0; meetings < 3; ++meetings) {
    loseRank2(
        [](Bootstrap& member, const moeUniqueId_t&) {
          std::this_thread::sleep_for(100ms);  // the newcomer waits by then
          recoverUntilLost(member, {2}, 2s);
        },
        [&](const moeUniqueId_t& id) {
          Bytes table;
          const Bytes card{1, 2};
          const Outcome outcome = outcomeOf([&] {
            auto member = Bootstrap::joinAsNewcomer(id, optionsOf(2, 3, 2s), card, &table);
            for (int i = 0; i < meetings; ++i) meetOthers(*member, 100 + i);
            if (meetings == 1) std::this_thread::sleep_for(1s);  // it hangs
          });
          // The survivors may have recovered before it came.
          EXPECT_TRUE(outcome.result == moeSuccess || outcome.result == moeTimeout) << outcome.sentence;
        });
  }
}

}  // namespace
}  // namespace moe::test
