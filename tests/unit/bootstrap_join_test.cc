// Joining a group, and its collectives. Ranks are threads.
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <numeric>

#include "bootstrap/group/rendezvous_server.h"
#include "bootstrap/net/dialer.h"
#include "bootstrap/net/socket.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using bootstrap::createUniqueId;
using bootstrap::serveUniqueId;
using bootstrap::uniqueIdFor;
constexpr std::array<std::uint8_t, 16> kSecret = {1, 2, 3};

std::vector<std::uint8_t> blobOf(int rank, std::size_t bytes) {
  std::vector<std::uint8_t> blob(bytes);
  std::iota(blob.begin(), blob.end(), static_cast<std::uint8_t>(rank * 7 + 1));
  return blob;
}

void gatherAndCheck(Bootstrap& member, const std::function<std::size_t(int)>& bytesOf) {
  const auto all = member.allGather(blobOf(member.rank(), bytesOf(member.rank())));
  ASSERT_EQ(all.size(), static_cast<std::size_t>(member.nranks()));
  for (int rank = 0; rank < member.nranks(); ++rank) {
    EXPECT_EQ(all[static_cast<std::size_t>(rank)], blobOf(rank, bytesOf(rank))) << "rank " << rank;
  }
}

TEST(BootstrapJoin, OneRankIsAGroup) {
  expectAllWell(world(1, [](Bootstrap& member) {
    EXPECT_EQ(member.rank(), 0);
    EXPECT_EQ(member.nranks(), 1);
    gatherAndCheck(member, [](int) { return std::size_t{100}; });
    member.barrier();
  }));
}

TEST(BootstrapJoin, GathersBlobsOfDifferentSizesInRankOrder) {
  for (const int nranks : {2, 3, 17, 18, 40}) {
    expectAllWell(world(nranks, [](Bootstrap& member) {
      gatherAndCheck(member, [](int rank) { return static_cast<std::size_t>(rank) * 333 % 2000; });
      gatherAndCheck(member, [](int) { return std::size_t{0}; });
      member.barrier();
      gatherAndCheck(member, [](int rank) { return static_cast<std::size_t>(rank == 1 ? 70000 : 1); });
    }));
  }
}

TEST(BootstrapJoin, GathersTheLargestBlobs) {
  expectAllWell(world(3, [](Bootstrap& member) { gatherAndCheck(member, [](int) { return std::size_t{16} << 20; }); }));
}

TEST(BootstrapJoin, RefusesABlobThatIsTooLarge) {
  expectAllWell(world(1, [](Bootstrap& member) {
    const Outcome outcome = outcomeOf([&] { member.allGather(blobOf(0, (std::size_t{16} << 20) + 1)); });
    EXPECT_EQ(outcome.result, moeInvalidArgument);
    member.barrier();
  }));
}

TEST(BootstrapJoin, SixtyFourRanksJoinQuickly) {
  allowManyDescriptors();
  const auto start = Clock::now();
  expectAllWell(world(64, [](Bootstrap& member) {
    gatherAndCheck(member, [](int) { return std::size_t{256}; });
    member.barrier();
  }));
  EXPECT_LT(secondsSince(start), 10.0);
}

TEST(BootstrapJoin, BarriersSeparateWhatIsBeforeFromWhatIsAfter) {
  std::atomic<int> arrived = 0;
  expectAllWell(world(20, [&](Bootstrap& member) {
    for (int i = 1; i <= 20; ++i) {
      arrived.fetch_add(1);
      member.barrier();
      EXPECT_GE(arrived.load(), i * 20);
    }
  }));
}

TEST(BootstrapJoin, TwoGroupsInOneProcessDoNotMeet) {
  const moeUniqueId_t first = createUniqueId(20s, "");
  const moeUniqueId_t second = createUniqueId(20s, "");
  expectAllWell(inThreads(8, [&](int i) {
    auto member = Bootstrap::join(i < 4 ? first : second, optionsOf(i % 4, 4));
    const std::uint8_t mine = static_cast<std::uint8_t>(i);
    for (const auto& blob : member->allGather(std::span(&mine, 1))) EXPECT_EQ(blob.at(0) / 4, i / 4);
  }));
}

TEST(BootstrapJoin, RanksMeetAtAFixedPortThatIsServedLate) {
  const moeUniqueId_t id = uniqueIdFor("127.0.0.1", freePort(), kSecret, 20s);
  expectAllWell(inThreads(4, [&](int rank) {
    if (rank == 0) {
      std::this_thread::sleep_for(300ms);
      serveUniqueId(id, 20s);
    }
    Bootstrap::join(id, optionsOf(rank, 4))->barrier();
  }));
}

TEST(BootstrapJoin, WorksOverIpv6Loopback) {
  const moeUniqueId_t id = uniqueIdFor("::1", freePort(), kSecret, 20s);
  serveUniqueId(id, 20s);
  expectAllWell(inThreads(4, [&](int rank) { Bootstrap::join(id, optionsOf(rank, 4))->barrier(); }));
}

TEST(BootstrapJoin, TriesTheNextAddressWhenOneDoesNotAnswer) {
  bootstrap::IdContents contents = bootstrap::decodeUniqueId(createUniqueId(20s, "lo"));
  bootstrap::Address dead = contents.addresses.front();
  dead.port = freePort();
  contents.addresses.resize(1);
  contents.addresses.insert(contents.addresses.begin(), dead);
  const moeUniqueId_t id = bootstrap::encodeUniqueId(contents);
  expectAllWell(inThreads(2, [&](int rank) { Bootstrap::join(id, optionsOf(rank, 2))->barrier(); }));
}

TEST(BootstrapJoin, ASecondMeetingAtTheSamePortWithTheSameSecretWorks) {
  const moeUniqueId_t id = uniqueIdFor("127.0.0.1", freePort(), kSecret, 20s);
  for (int turn = 0; turn < 3; ++turn) {
    serveUniqueId(id, 20s);
    expectAllWell(inThreads(3, [&](int rank) { Bootstrap::join(id, optionsOf(rank, 3))->barrier(); }));
    std::this_thread::sleep_for(50ms);
  }
}

TEST(BootstrapJoin, SaysThatThePortIsTaken) {
  const auto listener = bootstrap::listenTcp({bootstrap::Address::any(AF_INET, 0)}, 0);
  const moeUniqueId_t id = uniqueIdFor("127.0.0.1", listener.port, kSecret, 20s);
  const Outcome outcome = outcomeOf([&] { serveUniqueId(id, 1s); });
  EXPECT_EQ(outcome.result, moeSystemError);
  EXPECT_NE(outcome.sentence.find(std::to_string(listener.port)), std::string::npos) << outcome.sentence;
}

TEST(BootstrapJoin, RefusesAWrongSecret) {
  bootstrap::IdContents contents = bootstrap::decodeUniqueId(createUniqueId(2s, "lo"));
  contents.secret[3] ^= 1;
  const auto start = Clock::now();
  const Outcome outcome = outcomeOf([&] { Bootstrap::join(bootstrap::encodeUniqueId(contents), optionsOf(0, 2)); });
  EXPECT_EQ(outcome.result, moeInvalidUsage);
  EXPECT_NE(outcome.sentence.find("secret"), std::string::npos) << outcome.sentence;
  EXPECT_LT(secondsSince(start), 1.0);
}

TEST(BootstrapJoin, AWrongSecretDoesNotDisturbTheGroup) {
  const moeUniqueId_t id = createUniqueId(20s, "");
  bootstrap::IdContents wrong = bootstrap::decodeUniqueId(id);
  wrong.secret[0] ^= 0x80;
  const auto outcomes = inThreads(5, [&](int i) {
    if (i == 4) std::this_thread::sleep_for(100ms);
    Bootstrap::join(i == 3 ? bootstrap::encodeUniqueId(wrong) : id, optionsOf(i == 4 ? 3 : i, 4))->barrier();
  });
  for (const int good : {0, 1, 2, 4}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(good)].result, moeSuccess)
        << outcomes[static_cast<std::size_t>(good)].sentence;
  }
  EXPECT_EQ(outcomes[3].result, moeInvalidUsage);
}

TEST(BootstrapJoin, TellsEveryRankWhoJoinedTwice) {
  const moeUniqueId_t id = createUniqueId(20s, "");
  const auto outcomes = inThreads(3, [&](int i) { Bootstrap::join(id, optionsOf(i == 2 ? 1 : i, 4)); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, moeInvalidUsage);
    EXPECT_NE(outcome.sentence.find("rank 1 joined twice"), std::string::npos) << outcome.sentence;
  }
}

TEST(BootstrapJoin, TellsEveryRankWhoDisagreesOnNranks) {
  const moeUniqueId_t id = createUniqueId(20s, "");
  const auto outcomes = inThreads(4, [&](int rank) { Bootstrap::join(id, optionsOf(rank, rank == 2 ? 5 : 6)); });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, moeInvalidUsage);
    EXPECT_NE(outcome.sentence.find("rank 2 ("), std::string::npos) << outcome.sentence;
    EXPECT_NE(outcome.sentence.find("says 5"), std::string::npos) << outcome.sentence;
    EXPECT_NE(outcome.sentence.find("says 6"), std::string::npos) << outcome.sentence;
  }
}

TEST(BootstrapJoin, RefusesRanksOutsideTheGroup) {
  const moeUniqueId_t id = createUniqueId(1s, "");
  for (const auto& [rank, nranks] : {std::pair{-1, 4}, {4, 4}, {0, 0}, {0, 100000}}) {
    EXPECT_EQ(outcomeOf([&, r = rank, n = nranks] { Bootstrap::join(id, optionsOf(r, n)); }).result,
              moeInvalidArgument);
  }
}

TEST(BootstrapJoin, NamesTheRanksThatAreMissingAtTheDeadline) {
  const moeUniqueId_t id = createUniqueId(800ms, "");
  const std::vector<int> present = {0, 1, 2, 4, 5, 6};
  const auto start = Clock::now();
  const auto outcomes =
      inThreads(6, [&](int i) { Bootstrap::join(id, optionsOf(present[static_cast<std::size_t>(i)], 8, 800ms)); });
  EXPECT_LT(secondsSince(start), 1.5);
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.result, moeTimeout);
    EXPECT_EQ(outcome.sentence, "ranks 3, 7 did not join within 800 ms");
  }
}

// Joins at the rendezvous as `rank`, then does nothing until `over`.
void comeAndStop(const moeUniqueId_t& id, int rank, bootstrap::JoinRequest request, Meet& over) {
  using namespace bootstrap;
  const IdContents contents = decodeUniqueId(id);
  const Listener listener = listenTcp({Address::any(AF_INET, 0)}, 0);
  request.addresses = {contents.addresses.front()};
  request.addresses.front().port = listener.port;
  Dialer dialer(contents.addresses, rendezvousKey(contents.secret), maskOf(FrameType::table, FrameType::refusal), 20s);
  PollSet set;
  while (dialer.state() == Dialer::State::trying) {
    set.clear();
    dialer.arm(set);
    set.wait(20);
    dialer.serve(set);
  }
  const auto link = dialer.take();
  link->send(FrameType::join, rank, request.encode());
  link->pump(POLLOUT);
  over.wait();
}

TEST(BootstrapJoin, NamesTheRankThatIsStoppedWhenAllHaveCome) {
  const moeUniqueId_t id = createUniqueId(1500ms, "");
  Meet over(4);
  const auto outcomes = inThreads(4, [&](int rank) {
    std::this_thread::sleep_for(300ms);  // an id is older than the ranks that use it
    if (rank == 2) return comeAndStop(id, rank, {4, 1500, 1500, {}}, over);
    const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(rank, 4, 1500ms)); });
    over.wait();
    throw Error(outcome.result, outcome.sentence);
  });
  for (const int rank : {0, 1, 3}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].result, moeTimeout);
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].sentence, "rank 2 did not complete the join within 1500 ms");
  }
}

TEST(BootstrapJoin, SaysWhenNobodyServesTheId) {
  const moeUniqueId_t id = uniqueIdFor("127.0.0.1", freePort(), kSecret, 20s);
  const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(1, 2, 300ms)); });
  EXPECT_EQ(outcome.result, moeTimeout);
  EXPECT_NE(outcome.sentence.find("refused"), std::string::npos) << outcome.sentence;
}

TEST(BootstrapJoin, DoesNotWaitForAnIdThatWasUsedBefore) {
  const moeUniqueId_t id = createUniqueId(20s, "");
  Bootstrap::join(id, optionsOf(0, 1));
  std::this_thread::sleep_for(50ms);
  const auto start = Clock::now();
  const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(0, 1)); });
  // The id's port is free again. A test that runs beside this one may have taken it and may answer there.
  const bool taken = outcome.sentence.find("belongs to another run") != std::string::npos;
  EXPECT_EQ(outcome.result, taken ? moeInvalidUsage : moeRemoteError) << outcome.sentence;
  EXPECT_LT(secondsSince(start), 5.0);
}

TEST(BootstrapJoin, NamesTheRankThatDoesNotComeToTheAllGather) {
  const moeUniqueId_t id = createUniqueId(20s, "");
  Meet over(20);
  // Rank 18 is a leaf below rank 1. Ranks all over the tree must name it.
  const auto outcomes = inThreads(20, [&](int rank) {
    auto member = Bootstrap::join(id, optionsOf(rank, 20, 1500ms));
    const Outcome outcome = outcomeOf([&] {
      if (rank != 18) member->allGather({});
    });
    over.wait();
    if (outcome.result != moeSuccess) throw Error(outcome.result, outcome.sentence);
  });
  for (int rank = 0; rank < 20; ++rank) {
    if (rank == 18) continue;
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].result, moeTimeout);
    EXPECT_EQ(outcomes[static_cast<std::size_t>(rank)].sentence,
              "rank 18 did not complete the all-gather within 1500 ms");
  }
}

TEST(BootstrapJoin, LeavesNoDescriptorsBehind) {
  world(4, [](Bootstrap& member) { member.barrier(); });  // opens what a process opens once
  std::this_thread::sleep_for(200ms);
  const std::size_t before = openDescriptors();
  expectAllWell(world(20, [](Bootstrap& member) {
    member.barrier();
    member.startMonitor([](const auto&) {});
  }));
  for (int i = 0; i < 50 && openDescriptors() > before; ++i) std::this_thread::sleep_for(20ms);
  EXPECT_EQ(openDescriptors(), before);
}

}  // namespace
}  // namespace moe::test
