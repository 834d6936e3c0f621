// Libraries of different versions that meet: both sides can say so.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "bootstrap/net/frame.h"
#include "bootstrap/net/socket.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using namespace bootstrap;
using Bytes = std::vector<std::uint8_t>;
constexpr std::size_t kVersionAt = 5;  // in a header

Bytes helloOf(std::uint8_t version) {
  Bytes hello = encodeFrame(FrameType::hello, 0, Key{});
  hello[kVersionAt] = version;
  return hello;
}

// Sends `bytes`, and returns what comes until the other side closes.
Bytes answerTo(const Address& address, const Bytes& bytes) {
  const Fd fd(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketName name = address.socketName();
  EXPECT_EQ(::connect(fd.get(), name.get(), name.length), 0);
  EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  Bytes answer(256);
  std::size_t filled = 0;
  for (ssize_t got = 1; got > 0 && filled < answer.size();
       filled += static_cast<std::size_t>(std::max(got, ssize_t{0}))) {
    got = ::recv(fd.get(), answer.data() + filled, answer.size() - filled, 0);
  }
  answer.resize(filled);
  return answer;
}

TEST(BootstrapVersion, AListenerAnswersAnotherVersionWithItsOwn) {
  const moeUniqueId_t id = createUniqueId(20s, "lo");
  const Address meeting = decodeUniqueId(id).addresses.front();
  const std::uint8_t own = encodeFrame(FrameType::goodbye, 0)[kVersionAt];
  for (const std::uint8_t other : {std::uint8_t{3}, static_cast<std::uint8_t>(own + 1)}) {
    const Bytes answer = answerTo(meeting, helloOf(other));
    ASSERT_GE(answer.size(), kFrameHeaderBytes);
    EXPECT_EQ(answer[kVersionAt], own);
    FrameParser parser(kHandshakeFrames);  // the other library's fails in the same way at the version
    parser.feed(answer);
    EXPECT_TRUE(parser.next());
    EXPECT_FALSE(parser.next());
  }
  expectAllWell(inThreads(2, [&](int rank) { Bootstrap::join(id, optionsOf(rank, 2))->barrier(); }));
}

TEST(BootstrapVersion, RanksThatMissOneSayThatAnotherVersionHasConnected) {
  const moeUniqueId_t id = createUniqueId(20s, "lo");
  answerTo(decodeUniqueId(id).addresses.front(), helloOf(3));
  const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(0, 2, 500ms)); });
  EXPECT_EQ(outcome.result, moeTimeout);
  EXPECT_NE(outcome.sentence.find("rank 1 did not join within 500 ms"), std::string::npos) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find("it speaks bootstrap version 3, this is version 5"), std::string::npos)
      << outcome.sentence;
}

TEST(BootstrapVersion, AListenerAnswersNothingToAnotherProtocol) {
  const moeUniqueId_t id = createUniqueId(20s, "lo");
  Bytes hello = helloOf(3);
  hello[0] ^= 1;
  EXPECT_TRUE(answerTo(decodeUniqueId(id).addresses.front(), hello).empty());
}

TEST(BootstrapVersion, ARankThatMeetsAnotherVersionSaysBothAtOnce) {
  Listener listener = listenTcp({Address::loopback(AF_INET)}, 0);
  const Address address = listener.addresses.front();
  std::thread other([&] {
    pollfd entry{listener.sockets.front().get(), POLLIN, 0};
    if (::poll(&entry, 1, 10000) != 1) return;
    const Fd guest(::accept4(entry.fd, nullptr, nullptr, SOCK_CLOEXEC));
    Bytes hello(kFrameHeaderBytes + sizeof(Key));
    EXPECT_EQ(::recv(guest.get(), hello.data(), hello.size(), MSG_WAITALL), static_cast<ssize_t>(hello.size()));
    const Bytes own = helloOf(200);
    EXPECT_EQ(::send(guest.get(), own.data(), own.size(), MSG_NOSIGNAL), static_cast<ssize_t>(own.size()));
  });
  const moeUniqueId_t id = uniqueIdFor("127.0.0.1", address.port, Key{1}, 20s);
  const auto start = Clock::now();
  const Outcome outcome = outcomeOf([&] { Bootstrap::join(id, optionsOf(1, 2)); });
  other.join();
  EXPECT_LT(secondsSince(start), 5.0);
  EXPECT_EQ(outcome.result, moeInvalidUsage) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find("rank 1: "), std::string::npos) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find("it speaks bootstrap version 200, this is version 5"), std::string::npos)
      << outcome.sentence;
}

}  // namespace
}  // namespace moe::test
