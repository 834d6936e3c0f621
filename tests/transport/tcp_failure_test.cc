// Puts over TCP when something is wrong: strangers, peers that die, stop or lie, and ranks that never connect.
#include <random>

#include "transport/fake_tcp_peer.h"

namespace moe::test {
namespace {

MemberOptions impatient(std::int64_t timeoutMs) {
  MemberOptions options;
  options.timeoutMs = timeoutMs;
  return options;
}

void expectSays(const Outcome& outcome, moeResult_t result, const std::string& text) {
  EXPECT_EQ(outcome.result, result) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find(text), std::string::npos) << outcome.sentence;
}

// ---- Meeting ----

TEST(TcpMeeting, StrangersAreNotLetInAndKeepNobodyOut) {
  Member low(0, 2, {});
  Member high(1, 2, {});
  const std::vector<CardBytes> cards{low.transport().card(), high.transport().card()};
  Outcome ofHigh;
  std::thread connecting([&] { ofHigh = outcomeOf([&] { high.connect(cards); }); });
  EXPECT_FALSE(FakeTcpPeer(cards[1], 0, 2, {1, 2, 3}).letIn());
  EXPECT_FALSE(FakeTcpPeer(cards[1], 0, 2, tcpKeyOf(0)).letIn()) << "with the key of another rank";
  EXPECT_FALSE(FakeTcpPeer(cards[1], 1, 2, tcpKeyOf(1)).letIn()) << "its own rank";
  EXPECT_FALSE(FakeTcpPeer(cards[1], 7, 2, tcpKeyOf(1)).letIn()) << "no rank of the group";
  EXPECT_FALSE(FakeTcpPeer(cards[1], 0, 3, tcpKeyOf(1)).letIn()) << "another size of group";

  const auto address = TcpCard::decode(cards[1], 1).addresses.front();
  std::vector<Fd> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(bootstrap::startConnect(address).fd);
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i) {
    const Fd loud = bootstrap::startConnect(address).fd;
    pollfd entry{loud.get(), POLLOUT, 0};
    ::poll(&entry, 1, 1000);
    std::vector<std::uint8_t> noise(static_cast<std::size_t>(random() % 4000 + 1));
    for (auto& byte : noise) byte = static_cast<std::uint8_t>(random());
    (void)!::send(loud.get(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  low.connect(cards);
  connecting.join();
  EXPECT_EQ(ofHigh.result, moeSuccess) << ofHigh.sentence;
  low.putWord(1, 64, 5);
  high.await(64, 5);
  expectAllWell(low.failures());
  expectAllWell(high.failures());
}

// Cards pass through the group's sockets, where everyone who sees the wire can read them.
TEST(TcpMeeting, WhoHasReadTheCardsIsNotLetIn) {
  Member low(0, 2, {});
  Member high(1, 2, {});
  const std::vector<CardBytes> cards{low.transport().card(), high.transport().card()};
  Outcome ofHigh;
  std::thread connecting([&] { ofHigh = outcomeOf([&] { high.connect(cards); }); });
  for (std::size_t at = 0; at + sizeof(bootstrap::Key) <= cards[1].size(); ++at) {
    bootstrap::Key read{};
    std::copy_n(cards[1].begin() + static_cast<std::ptrdiff_t>(at), read.size(), read.begin());
    EXPECT_FALSE(FakeTcpPeer(cards[1], 0, 2, read).letIn()) << "with the bytes from " << at;
  }
  low.connect(cards);
  connecting.join();
  EXPECT_EQ(ofHigh.result, moeSuccess) << ofHigh.sentence;
}

// A deceiver listens at the address on rank 1's card, and has read the card too.
TEST(TcpMeeting, ARankThatDialsIsNotDeceived) {
  MemberOptions deceiver;
  deceiver.keyOf = [](int) { return bootstrap::Key{}; };
  Member low(0, 2, {});
  Member other(1, 2, deceiver);
  const std::vector<CardBytes> cards{low.transport().card(), other.transport().card()};
  std::thread listening([&] { outcomeOf([&] { other.connect(cards, 500ms); }); });
  expectSays(outcomeOf([&] { low.connect(cards, 300ms); }), moeTimeout, "it does not know the secret of this group");
  listening.join();
}

TEST(TcpMeeting, ListensOnlyUntilAllPeersHaveCome) {
  Members members(3);
  for (const CardBytes& card : members.cards()) {
    for (const auto& address : TcpCard::decode(card, 0).addresses) {
      EXPECT_TRUE(address.isLoopback()) << address.text();
      const Fd socket(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const bootstrap::SocketName name = address.socketName();
      EXPECT_EQ(::connect(socket.get(), name.get(), name.length), -1) << address.text();
      EXPECT_EQ(errno, ECONNREFUSED);
    }
  }
}

TEST(TcpMeeting, ARankThatComesAgainReplacesItsFirstConnection) {
  Member member(2, 3, {});
  const std::vector<CardBytes> cards{emptyCard(), emptyCard(), member.transport().card()};
  Outcome outcome;
  std::thread connecting([&] { outcome = outcomeOf([&] { member.connect(cards); }); });
  FakeTcpPeer first(cards[2], 0, 3, tcpKeyOf(2));
  FakeTcpPeer again(cards[2], 0, 3, tcpKeyOf(2));
  FakeTcpPeer other(cards[2], 1, 3, tcpKeyOf(2));
  connecting.join();
  EXPECT_EQ(outcome.result, moeSuccess) << outcome.sentence;
  again.send(TcpFrame{TcpKind::word, 0, 64, 9});
  member.await(64, 9);
  expectAllWell(member.failures());
}

TEST(TcpMeeting, EndsWhenTheGroupHasHeardOfADeath) {
  const auto start = std::chrono::steady_clock::now();
  MemberOptions options;
  options.hearGroup = [&] {
    if (std::chrono::steady_clock::now() - start > 200ms) throw Error(moeRemoteError, "rank 7 died");
  };
  Member low(0, 2, options);
  Member high(1, 2, options);
  const std::vector<CardBytes> cards{low.transport().card(), high.transport().card()};
  expectSays(outcomeOf([&] { high.connect(cards, 20s); }), moeRemoteError, "rank 7 died");
  high.leave();
  expectSays(outcomeOf([&] { low.connect(cards, 20s); }), moeRemoteError, "rank 7 died");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(TcpMeeting, NamesTheRankThatDoesNotCome) {
  Member low(0, 2, {});
  Member high(1, 2, {});
  const std::vector<CardBytes> cards{low.transport().card(), high.transport().card()};
  expectSays(outcomeOf([&] { high.connect(cards, 100ms); }), moeTimeout, "rank 0 did not connect to rank 1");
  high.leave();  // now nothing listens there
  expectSays(outcomeOf([&] { low.connect(cards, 300ms); }), moeTimeout, "rank 0 cannot connect to rank 1");
}

TEST(TcpMeeting, NamesTheRankWhoseCardIsNone) {
  Member low(0, 2, {});
  const CardBytes mine = low.transport().card();
  for (std::size_t length = 0; length <= mine.size(); ++length) {
    CardBytes card(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(length));
    if (length == mine.size()) card.push_back(0);
    Member member(0, 2, {});
    expectSays(outcomeOf([&] { member.connect({mine, card}); }), moeInvalidUsage, "the card of rank 1");
  }
}

TEST(TcpMeeting, RefusesAnInterfaceThatDoesNotExist) {
  MemberOptions options;
  options.interfaceName = "none_such";
  expectSays(outcomeOf([&] { Member(0, 2, options); }), moeInvalidArgument, "none_such");
}

// ---- Peers that die or stop ----

TEST(TcpFailure, APeerThatClosesIsNamed) {
  Members members(3);
  members[1].leave();  // without finish()
  expectSays(members[0].awaitFailure(10s), moeRemoteError,
             "rank 0: rank 1 closed the connection for puts without a goodbye");
  expectSays(members[2].awaitFailure(10s), moeRemoteError,
             "rank 2: rank 1 closed the connection for puts without a goodbye");
  EXPECT_TRUE(members[0].putWord(1, 0, 1)) << "puts to it go nowhere";
  EXPECT_TRUE(members[0].putWord(2, 8, 3)) << "others are still served";
  members[2].await(8, 3);
  const auto before = Clock::now();
  members[0].finish();
  EXPECT_LT(secondsSince(before), 5) << "after a failure nothing is waited for";
}

TEST(TcpFailure, APeerThatClosesInTheMiddleOfAPutIsNamed) {
  MemberAndFake pair;
  pair.fake->send(TcpFrame{TcpKind::bytes, 4000, 0, 0});
  pair.fake->send(std::vector<std::uint8_t>(1000).data(), 1000);
  pair.fake->close();
  expectSays(pair.member.awaitFailure(10s), moeRemoteError, "rank 1: rank 0 closed the connection");
}

// Puts more to rank 0, which reads nothing, than the sockets of both sides hold.
void fillSockets(Member& member) {
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(member.put(0, 0, 0, std::size_t{1} << 20));
}

TEST(TcpFailure, APeerThatStopsReadingIsNamedAndTheOthersAreServed) {
  MemberOptions options = impatient(1500);
  options.tcp.rings = 1;
  Member middle(1, 3, options);
  Member high(2, 3, options);
  const std::vector<CardBytes> cards{emptyCard(), middle.transport().card(), high.transport().card()};
  std::vector<Outcome> outcomes(2);
  std::thread a([&] { outcomes[0] = outcomeOf([&] { middle.connect(cards); }); });
  std::thread b([&] { outcomes[1] = outcomeOf([&] { high.connect(cards); }); });
  FakeTcpPeer ofMiddle(cards[1], 0, 3, tcpKeyOf(1));
  FakeTcpPeer ofHigh(cards[2], 0, 3, tcpKeyOf(2));
  a.join();
  b.join();
  expectAllWell(outcomes);

  fillSockets(middle);
  const auto before = Clock::now();
  for (std::uint64_t round = 1; middle.failures().empty() && secondsSince(before) < 20; ++round) {
    ASSERT_TRUE(middle.putWord(2, 8, round));
    high.await(8, round);
  }
  expectSays(middle.awaitFailure(1ms), moeTimeout, "rank 1: rank 0 has acknowledged nothing for 1500 ms");
  EXPECT_GT(secondsSince(before), 1.0);
  EXPECT_LT(secondsSince(before), 10.0);
  EXPECT_GT(high.load(8), 100U);
  expectAllWell(high.failures());
}

TEST(TcpFailure, ATimeoutThatIsLoweredCounts) {
  MemberAndFake pair(impatient(60000));
  fillSockets(pair.member);
  std::this_thread::sleep_for(200ms);
  pair.member.setTimeout(500);
  expectSays(pair.member.awaitFailure(20s), moeTimeout, "rank 0");  // the kernel or the sender notices it first
}

// The kernel also has a timer for each socket.
TEST(TcpFailure, ATimeoutThatIsRaisedCounts) {
  MemberAndFake pair(impatient(1000));
  pair.member.setTimeout(60000);
  std::this_thread::sleep_for(600ms);
  fillSockets(pair.member);
  pair.fake->send(TcpFrame{TcpKind::bytes, 4000, 0, 0});
  pair.fake->send(std::vector<std::uint8_t>(1000).data(), 1000);
  EXPECT_EQ(pair.member.awaitFailure(5s).sentence, "");
}

TEST(TcpFailure, APeerThatStopsInTheMiddleOfAPutIsNamed) {
  MemberAndFake pair(impatient(500));
  pair.fake->send(TcpFrame{TcpKind::bytes, 4000, 0, 0});
  pair.fake->send(std::vector<std::uint8_t>(1000).data(), 1000);
  const auto before = Clock::now();
  expectSays(pair.member.awaitFailure(10s), moeTimeout,
             "rank 1: rank 0 sent a part of a put, and then nothing for 500 ms");
  EXPECT_GT(secondsSince(before), 0.3);
}

// Connects rank 1 and rank 2 with each other, and both with a rank 0 that the test plays.
struct FakeRankZero {
  FakeRankZero(Member& early, Member& late) {
    const std::vector<CardBytes> cards{emptyCard(), early.transport().card(), late.transport().card()};
    expectAllWell(inThreads(3, [&](int part) {
      if (part == 1) return early.connect(cards);
      if (part == 2) return late.connect(cards);
      toEarly = std::make_unique<FakeTcpPeer>(cards[1], 0, 3, tcpKeyOf(1));
      toLate = std::make_unique<FakeTcpPeer>(cards[2], 0, 3, tcpKeyOf(2));
    }));
  }
  std::unique_ptr<FakeTcpPeer> toEarly, toLate;
};

// Rank 1 learns of rank 0's death first and leaves. Rank 2 learns of the death later.
TEST(TcpFailure, ASurvivorThatLeavesAfterAFailureIsNotNamed) {
  Member early(1, 3, {}), late(2, 3, {});
  FakeRankZero zero(early, late);

  zero.toEarly->close();
  expectSays(early.awaitFailure(10s), moeRemoteError, "rank 1: rank 0 closed the connection");
  ASSERT_TRUE(early.putWord(2, 8, 5));
  early.finish();
  early.leave();
  late.await(8, 5);  // puts that rank 1 posted before it left still arrive
  ASSERT_TRUE(late.putWord(1, 8, 1)) << "puts to it go nowhere";
  std::this_thread::sleep_for(100ms);
  expectAllWell(late.failures());
  zero.toLate->close();
  expectSays(late.awaitFailure(10s), moeRemoteError, "rank 2: rank 0 closed the connection");
  EXPECT_EQ(late.failures().size(), 1U);
}

// The same if its puts are stuck. A failed communicator waits for them only for a while, as Comm::finishPuts does.
TEST(TcpFailure, ASurvivorThatCannotSendEverythingIsNotNamedEither) {
  MemberOptions options;
  options.tcp.rings = 1;
  options.tcp.backlogMax = 4;  // so that puts to the other ranks get stuck too
  Member early(1, 3, options), late(2, 3, {});
  FakeRankZero zero(early, late);

  for (int i = 0; i < 60; ++i) ASSERT_TRUE(early.put(0, 0, 0, std::size_t{1} << 20));  // rank 0 reads nothing
  const auto before = Clock::now();
  early.transport().finish(Deadline::after(20s), [&] { return secondsSince(before) > 0.5; });
  EXPECT_LT(secondsSince(before), 10);
  early.leave();
  std::this_thread::sleep_for(100ms);
  expectAllWell(late.failures());
}

TEST(TcpFailure, FinishEndsAtTheDeadlineIfAPeerDoesNotAnswer) {
  MemberAndFake pair;
  const auto before = Clock::now();
  pair.member.finish(300ms);
  EXPECT_GT(secondsSince(before), 0.25);
  EXPECT_LT(secondsSince(before), 5);
  pair.fake->close();
  std::this_thread::sleep_for(50ms);
  expectAllWell(pair.member.failures());  // nothing needs the peer any more
}

// ---- Peers that lie ----

TEST(TcpFailure, FramesThatDoNotFitTheWindowAreRefusedWithTheirNumbers) {
  constexpr std::uint64_t kWindow = 65536;
  const std::pair<TcpFrame, std::string> cases[] = {
      {{TcpKind::bytes, 4, kWindow, 0}, "it put 4 bytes at offset 65536 of a window of 65536"},
      {{TcpKind::bytes, 8, kWindow - 4, 0}, "it put 8 bytes at offset 65532"},
      {{TcpKind::bytes, 4, UINT64_MAX - 3, 0}, "it put 4 bytes at offset 18446744073709551612"},
      {{TcpKind::bytes, 0xfffffffc, 16, 0}, "it put 4294967292 bytes at offset 16"},
      {{TcpKind::bytes, 0, 16, 0}, "it put 0 bytes"},
      {{TcpKind::bytes, 6, 16, 0}, "it put 6 bytes"},
      {{TcpKind::bytes, 8, 18, 0}, "it put 8 bytes at offset 18"},
      {{TcpKind::word, 0, kWindow, 1}, "it put a word at offset 65536 of a window of 65536 bytes"},
      {{TcpKind::word, 0, kWindow - 4, 1}, "it put a word at offset 65532"},
      {{TcpKind::word, 0, UINT64_MAX - 7, 1}, "it put a word at offset 18446744073709551608"},
      {{TcpKind::word, 8, 16, 1}, "it put a word at offset 16"},
      {{TcpKind::drain, 8, 0, 0}, "it sent a frame of kind 0x54454f03 with 8 bytes"},
      {{static_cast<TcpKind>(7), 0, 0, 0}, "it sent a frame of kind 0x7"}};
  for (const auto& [frame, text] : cases) {
    MemberOptions options;
    options.windowBytes = kWindow;
    MemberAndFake pair(options);
    pair.fake->send(TcpFrame{TcpKind::word, 0, kWindow - 8, 7});  // the last word that fits
    pair.fake->send(frame);
    const Outcome outcome = pair.member.awaitFailure(10s);
    expectSays(outcome, moeRemoteError, "rank 1: rank 0: " + text);
    EXPECT_EQ(pair.member.load(kWindow - 8), 7U);
    EXPECT_EQ(pair.member.failures().size(), 1U);
  }
}

TEST(TcpFailure, WhateverAPeerSendsNothingBreaks) {
  std::mt19937 random(7);
  const auto draw = [&](std::uint32_t below) { return static_cast<std::uint32_t>(random() % below); };
  constexpr std::size_t kWindow = 65536;
  for (int i = 0; i < 60; ++i) {
    MemberOptions options;
    options.windowBytes = kWindow;
    MemberAndFake pair(options);
    std::vector<std::uint8_t> bytes;
    for (int frame = 0; frame < 40; ++frame) {
      TcpFrame next{static_cast<TcpKind>(0x54454f01 + draw(4)), 4 * draw(512), 4 * draw(16500), draw(1000)};
      if (next.kind != TcpKind::bytes) next.bytes = 0;
      const auto* raw = reinterpret_cast<const std::uint8_t*>(&next);
      bytes.insert(bytes.end(), raw, raw + sizeof next);
      bytes.resize(bytes.size() + next.bytes + (draw(20) == 0 ? draw(9) : 0), 0x5a);
    }
    // Sends pieces of random sizes.
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t piece = std::min<std::size_t>(draw(700) + 1, bytes.size() - at);
      if (!pair.fake->send(bytes.data() + at, piece)) break;
      at += piece;
    }
    pair.fake->close();
    pair.member.finish(1s);
  }
}

// ---- This rank's own mistakes ----

TEST(TcpFailure, PutsThatThisRankMayNotPostAreItsFailure) {
  constexpr std::uint64_t kWindow = std::uint64_t{1} << 20;
  const Put wrong[] = {putBytes(1, 0, kWindow - 4, 8), putBytes(1, 0, UINT64_MAX - 3, 8), putBytes(0, 0, 0, 8),
                       putBytes(5, 0, 0, 8)};
  for (const Put& put : wrong) {
    Members members(2);
    members[0].post(put);
    expectSays(members[0].awaitFailure(10s), moeInternalError, "rank 0: it posted a put of 8 bytes");
  }
}

TEST(TcpFailure, LeavesNoDescriptorAndNoThread) {
  const auto once = [] {
    Members members(3);
    members[1].leave();
    members[0].awaitFailure(10s);
    Member alone(1, 2, {});
    outcomeOf([&] { alone.connect({emptyCard(), alone.transport().card()}, 50ms); });
  };
  once();
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = threadCount();
  for (int i = 0; i < 3; ++i) once();
  EXPECT_EQ(openDescriptors(), descriptors);
  EXPECT_EQ(threadCount(), threads);
}

}  // namespace
}  // namespace moe::test
