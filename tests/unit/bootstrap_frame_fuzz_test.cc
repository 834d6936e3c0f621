// Feeds the parser, and the listeners of a group that must keep working, with bytes that no member would send. All
// inputs come from fixed seeds.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <random>

#include "bootstrap/net/frame.h"
#include "bootstrap/net/handshake.h"
#include "bootstrap/net/socket.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using namespace bootstrap;
using Bytes = std::vector<std::uint8_t>;
using Random = std::mt19937_64;

Bytes randomBytes(Random& random, std::size_t count) {
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

// A stream of one to four frames, valid or nearly so.
Bytes nearlyFrames(Random& random) {
  constexpr std::array<std::size_t, 8> kLengths = {0, 1, 4, 16, 32, 48, 60, 300};
  Bytes stream;
  for (std::size_t count = 1 + random() % 4; count > 0; --count) {
    const auto type = static_cast<FrameType>(1 + random() % 23);
    const Bytes payload = randomBytes(random, kLengths[random() % kLengths.size()]);
    Bytes frame;
    try {
      frame = encodeFrame(type, static_cast<std::uint32_t>(random() % 70000), payload);
    } catch (const Error&) {  // not a length for this type: sends a frame whose header claims it
      frame = encodeFrame(FrameType::gather, 1, payload);
      frame[4] = static_cast<std::uint8_t>(type);
    }
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (std::size_t flips = random() % 4; flips > 0; --flips) {
    stream[random() % stream.size()] ^= static_cast<std::uint8_t>(1U << random() % 8);
  }
  if (random() % 4 == 0) stream.resize(random() % stream.size());
  return stream;
}

Bytes anyInput(Random& random) {
  return random() % 5 == 0 ? randomBytes(random, random() % 200) : nearlyFrames(random);
}

TEST(FrameFuzz, TheParserSurvivesAnyBytesInAnyPieces) {
  Random random(20240607);
  std::size_t framesSeen = 0;
  std::size_t brokenSeen = 0;
  for (int i = 0; i < 200000; ++i) {
    const Bytes input = anyInput(random);
    FrameParser parser(static_cast<FrameMask>(random() % 3 == 0 ? random() : ~std::uint64_t{0}));
    for (std::size_t at = 0; at < input.size();) {
      const std::size_t piece = std::min(input.size() - at, 1 + random() % 64);
      parser.feed(std::span(input).subspan(at, piece));
      at += piece;
      while (const auto frame = parser.next()) {
        ++framesSeen;
        ASSERT_GE(static_cast<int>(frame->type), 1);
        ASSERT_LE(static_cast<int>(frame->type), 24);
        ASSERT_LT(frame->rank, kRankCountMax);
        ASSERT_LE(frame->payload.size(), input.size());
        std::uint8_t sum = 0;  // reads every byte, so that AddressSanitizer can object
        for (const std::uint8_t byte : frame->payload) sum = static_cast<std::uint8_t>(sum + byte);
        ASSERT_EQ(sum, sum);
      }
      ASSERT_LE(parser.heldBytes(), input.size());
    }
    if (parser.broken()) ++brokenSeen;
  }
  EXPECT_GT(framesSeen, 30000U);  // the inputs get past the first checks
  EXPECT_GT(brokenSeen, 50000U);
}

TEST(FrameFuzz, ReadersNeverReadPastTheEnd) {
  Random random(7);
  for (int i = 0; i < 50000; ++i) {
    const Bytes input = randomBytes(random, random() % 120);
    Reader in(input);
    std::vector<Address> addresses;
    readAddresses(in, addresses);
    EXPECT_LE(addresses.size(), kAddressCountMax);
  }
}

Fd connectTo(const Address& address) {
  Connecting connecting = startConnect(address);
  if (!connecting.fd) return {};
  pollfd entry{connecting.fd.get(), POLLOUT, 0};
  ::poll(&entry, 1, 1000);
  return std::move(connecting.fd);
}

void sendBytes(const Fd& fd, const Bytes& bytes) {
  if (fd) (void)::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

// Answers a challenge like a member, but with a random key.
Bytes conversation(Random& random, const Fd& fd) {
  Handshake client(Handshake::Side::client, randomKey(), randomKey());
  sendBytes(fd, client.start());
  if (random() % 2 == 0) return encodeFrame(FrameType::proof, 0, randomBytes(random, sizeof(Proof)));
  return client.start();
}

void attack(const std::vector<Address>& addresses, Random& random, int connections) {
  std::vector<Fd> open;
  for (int i = 0; i < connections; ++i) {
    Fd fd = connectTo(addresses.front());
    switch (random() % 5) {
      case 0:
        break;  // sends nothing
      case 1:
        sendBytes(fd, randomBytes(random, 1 + random() % 2000));
        break;
      case 2:
        sendBytes(fd, conversation(random, fd));
        break;
      default:
        sendBytes(fd, nearlyFrames(random));
    }
    if (random() % 2 == 0) open.push_back(std::move(fd));
  }
}

TEST(FrameFuzz, StrangersDoNotKeepAGroupFromJoining) {
  allowManyDescriptors();
  const moeUniqueId_t id = createUniqueId(20s, "lo");
  const std::vector<Address> meeting = decodeUniqueId(id).addresses;
  std::atomic<bool> stop = false;
  std::thread strangers([&] {
    Random random(99);
    while (!stop) attack(meeting, random, 20);
  });
  Random random(42);
  attack(meeting, random, 300);
  expectAllWell(inThreads(8, [&](int rank) {
    auto member = Bootstrap::join(id, optionsOf(rank, 8));
    Random own(static_cast<std::uint64_t>(rank));
    for (int i = 0; i < 5; ++i) {
      attack(member->addressesOf((rank + 1) % 8), own, 5);
      EXPECT_EQ(member->allGather(Bytes{static_cast<std::uint8_t>(rank)}).size(), 8U);
    }
    member->startMonitor([](const auto& failure) { ADD_FAILURE() << failure.sentence; });
    attack(member->addressesOf((rank + 3) % 8), own, 20);
    std::this_thread::sleep_for(100ms);
  }));
  stop = true;
  strangers.join();
}

TEST(FrameFuzz, ThousandsOfSilentConnectionsDoNotKeepAGroupFromJoining) {
  allowManyDescriptors();
  const moeUniqueId_t id = createUniqueId(20s, "lo");
  const Address meeting = decodeUniqueId(id).addresses.front();
  std::vector<Fd> silent;
  for (int i = 0; i < 3000; ++i) silent.push_back(startConnect(meeting).fd);
  const auto start = Clock::now();
  expectAllWell(inThreads(4, [&](int rank) { Bootstrap::join(id, optionsOf(rank, 4))->barrier(); }));
  EXPECT_LT(secondsSince(start), 6.0);
}

}  // namespace
}  // namespace moe::test
