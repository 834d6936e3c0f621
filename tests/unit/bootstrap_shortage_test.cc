// A rank whose process has no descriptors left says so, and the others hear it. Otherwise all would name ranks that
// are well.
#include <fmt/format.h>

#include "bootstrap/group/fd_channel.h"
#include "bootstrap/group/host_identity.h"
#include "bootstrap/group/rendezvous_server.h"
#include "bootstrap/net/dialer.h"
#include "support/base/process_limit.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using bootstrap::Address;

constexpr std::array<std::uint8_t, 16> kOwnSecret = {4, 2};

moeUniqueId_t idFor(std::uint16_t port) {
  return bootstrap::uniqueIdFor("127.0.0.1", port, kOwnSecret, 20s);
}

// Throws unless joining fails with moeSystemError and this sentence, followed by the limit.
void expectRefusal(const moeUniqueId_t& id, int rank, int nranks, const std::string& sentence) {
  const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(rank, nranks)); });
  if (outcome.result == moeSystemError && outcome.sentence.rfind(sentence + " (limit ", 0) == 0) return;
  throw Error(moeInternalError, fmt::format("rank {} says: {}\n", rank, outcome.sentence));
}

TEST(BootstrapShortage, AllRanksHearThatTheMeetingCannotAcceptThem) {
  constexpr int kRanks = 8;
  Children others(kRanks - 1, [](int index, const moeUniqueId_t& id, const auto&) {
    expectRefusal(id, index + 1, kRanks, "rank 0: cannot accept connections: Too many open files");
  });
  const moeUniqueId_t id = idFor(freePort());
  bootstrap::serveUniqueId(id, 20s);
  const FewDescriptors three(3);  // for the first three ranks
  const auto start = Clock::now();
  others.start(id);
  for (int i = 0; i < kRanks - 1; ++i) EXPECT_EQ(others.status(i), 0);
  EXPECT_LT(secondsSince(start), 10.0);
}

TEST(BootstrapShortage, TheOthersHearWhyRank0DidNotEvenJoin) {
  Children others(2, [](int index, const moeUniqueId_t& id, const auto&) {
    expectRefusal(id, index + 1, 3, "rank 0: cannot make a socket: Too many open files");
  });
  const moeUniqueId_t id = idFor(freePort());
  const bootstrap::ServedMeeting meeting = bootstrap::serveUniqueId(id, 20s);
  {
    const FewDescriptors none(0);
    const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(0, 3)); });
    EXPECT_EQ(outcome.result, moeSystemError);
    EXPECT_EQ(outcome.sentence.rfind("rank 0: cannot make a socket: Too many open files (limit ", 0), 0U)
        << outcome.sentence;
    meeting.giveUp(Error(outcome.result, outcome.sentence));
  }
  others.start(id);  // they come when rank 0 has given up
  for (int i = 0; i < 2; ++i) EXPECT_EQ(others.status(i), 0);
}

TEST(BootstrapShortage, AllRanksHearThatOneCannotAcceptItsChildrenInTheTree) {
  constexpr int kRanks = 3;
  Children ranks(kRanks, [](int rank, const moeUniqueId_t& id, const auto&) {
    std::unique_ptr<FewDescriptors> three;  // its listener, its mailbox, and the connection to the meeting
    if (rank == 0) three = std::make_unique<FewDescriptors>(3);
    expectRefusal(id, rank, kRanks, "rank 0: cannot accept connections: Too many open files");
  });
  const moeUniqueId_t id = idFor(freePort());
  bootstrap::serveUniqueId(id, 20s);
  const auto start = Clock::now();
  ranks.start(id);
  for (int i = 0; i < kRanks; ++i) EXPECT_EQ(ranks.status(i), 0);
  EXPECT_LT(secondsSince(start), 10.0);
}

TEST(BootstrapShortage, IsForgottenWhenItHasPassed) {
  bootstrap::Listener listener = bootstrap::listenTcp({Address::loopback(AF_INET)}, 0);
  const Address address = listener.addresses.front();
  bootstrap::Lobby lobby(std::move(listener.sockets), {}, 0, {});
  bootstrap::PollSet set;
  const auto look = [&] {
    set.clear();
    lobby.arm(set);
    set.wait(100);
    lobby.serve(set);
  };
  const auto visitor = bootstrap::startConnect(address);
  {
    const FewDescriptors none(0);
    EXPECT_FALSE(lobby.shortage(0ms));
    look();
    ASSERT_TRUE(lobby.shortage(0ms));
    EXPECT_FALSE(lobby.shortage(10s));
    EXPECT_EQ(std::string(lobby.shortage(0ms)->what()).rfind("cannot accept connections: Too many open files", 0), 0U);
  }
  const auto end = Clock::now() + 10s;
  while (lobby.shortage(0ms) && Clock::now() < end) look();
  EXPECT_FALSE(lobby.shortage(0ms));
}

TEST(BootstrapShortage, ADialerTellsItFromAnAddressThatDoesNotAnswer) {
  const FewDescriptors none(0);
  const bootstrap::Dialer dialer({Address::loopback(AF_INET)}, {}, 0, 1s);
  EXPECT_EQ(dialer.shortage(), EMFILE);
}

TEST(BootstrapShortage, IsWhyADescriptorIsNotTaken) {
  const bootstrap::Key key = bootstrap::randomKey();
  Children fetcher(1, [key](int, const moeUniqueId_t&, const auto&) {
    const FewDescriptors one(1);  // the connection
    const Outcome outcome = outcomeOf([&] { bootstrap::fetchFd(key, Deadline::after(10s)); });
    const std::string sentence = "cannot take a descriptor that another rank passes: Too many open files (limit ";
    if (outcome.sentence.rfind(sentence, 0) != 0) throw Error(moeInternalError, outcome.sentence + "\n");
  });
  bootstrap::FdServer server(key, STDIN_FILENO);
  std::atomic<bool> over = false;
  std::thread thread([&] {
    bootstrap::PollSet set;
    while (!over) {
      set.clear();
      server.arm(set);
      set.wait(10);
      server.serve(set);
    }
  });
  fetcher.start({});
  EXPECT_EQ(fetcher.status(0), 0);
  over = true;
  thread.join();
}

// Ranks that cannot read where they run would take each other for ranks of other hosts.
TEST(BootstrapShortage, ARankThatCannotSeeWhereItRunsSaysSo) {
  const FewDescriptors none(0);
  const Outcome outcome = outcomeOf([] { bootstrap::HostIdentity::current(); });
  EXPECT_EQ(outcome.result, moeSystemError);
  EXPECT_EQ(outcome.sentence.rfind("cannot read /proc/sys/kernel/random/boot_id: Too many open files", 0), 0U)
      << outcome.sentence;
}

}  // namespace
}  // namespace moe::test
