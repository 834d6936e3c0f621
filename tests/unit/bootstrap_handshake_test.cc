#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "bootstrap/net/handshake.h"

namespace moe::test {
namespace {

using namespace bootstrap;
using Side = Handshake::Side;
using State = Handshake::State;
constexpr Key kKey = {1};
constexpr Key kClientNonce = {2};
constexpr Key kServerNonce = {3};

// Gives the frames in `bytes` to `to`. Returns its answer.
std::vector<std::uint8_t> deliver(const std::vector<std::uint8_t>& bytes, Handshake& to) {
  FrameParser parser(kHandshakeFrames);
  parser.feed(bytes);
  std::vector<std::uint8_t> reply;
  while (const auto frame = parser.next()) to.onFrame(*frame, reply);
  return reply;
}

TEST(Handshake, SucceedsOnBothSidesWithTheSameKey) {
  Handshake client(Side::client, kKey, kClientNonce);
  Handshake server(Side::server, kKey, kServerNonce);
  const auto challenge = deliver(client.start(), server);
  EXPECT_EQ(server.state(), State::running);
  const auto proof = deliver(challenge, client);
  EXPECT_EQ(client.state(), State::done);
  EXPECT_TRUE(deliver(proof, server).empty());
  EXPECT_EQ(server.state(), State::done);
}

TEST(Handshake, NeverSendsTheKey) {
  const Key key = {'s', 'e', 'c', 'r', 'e', 't', ' ', 'k', 'e', 'y', ' ', 'b', 'y', 't', 'e', 's'};
  Handshake client(Side::client, key, kClientNonce);
  Handshake server(Side::server, key, kServerNonce);
  auto all = client.start();
  const auto challenge = deliver(all, server);
  const auto proof = deliver(challenge, client);
  all.insert(all.end(), challenge.begin(), challenge.end());
  all.insert(all.end(), proof.begin(), proof.end());
  EXPECT_EQ(std::search(all.begin(), all.end(), key.begin(), key.begin() + 4), all.end());
}

TEST(Handshake, ClientRefusesAServerWithAnotherKeyAndSendsItNoProof) {
  Handshake client(Side::client, kKey, kClientNonce);
  Handshake server(Side::server, Key{9}, kServerNonce);
  EXPECT_TRUE(deliver(deliver(client.start(), server), client).empty());
  EXPECT_EQ(client.state(), State::refused);
  EXPECT_TRUE(client.wrongKey());
}

TEST(Handshake, ServerRefusesAProofWithAnyWrongBit) {
  for (std::size_t bit = 0; bit < 8 * sizeof(Proof); ++bit) {
    Handshake client(Side::client, kKey, kClientNonce);
    Handshake server(Side::server, kKey, kServerNonce);
    auto proof = deliver(deliver(client.start(), server), client);
    proof[kFrameHeaderBytes + bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    deliver(proof, server);
    EXPECT_EQ(server.state(), State::refused) << "bit " << bit;
    EXPECT_TRUE(server.wrongKey());
  }
}

TEST(Handshake, ClientRefusesAProofWithAnyWrongBit) {
  for (std::size_t bit = 0; bit < 8 * sizeof(Proof); ++bit) {
    Handshake client(Side::client, kKey, kClientNonce);
    Handshake server(Side::server, kKey, kServerNonce);
    auto challenge = deliver(client.start(), server);
    challenge[kFrameHeaderBytes + sizeof(Key) + bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    EXPECT_TRUE(deliver(challenge, client).empty());
    EXPECT_EQ(client.state(), State::refused) << "bit " << bit;
    EXPECT_TRUE(client.wrongKey());
  }
}

// The parser lets no such frame through. The handshake does not rely on that: missing bytes must not count as right.
TEST(Handshake, RefusesAPartOfAProof) {
  for (std::size_t length = 0; length < sizeof(Proof); ++length) {
    Handshake client(Side::client, kKey, kClientNonce);
    Handshake server(Side::server, kKey, kServerNonce);
    const auto challenge = deliver(client.start(), server);
    const auto proof = deliver(challenge, client);
    const std::span<const std::uint8_t> part = std::span(proof).subspan(kFrameHeaderBytes, length);
    EXPECT_THROW(encodeFrame(FrameType::proof, 0, part), Error);
    std::vector<std::uint8_t> reply;
    EXPECT_EQ(server.onFrame(Frame{FrameType::proof, 0, 0, part}, reply), State::refused) << length << " bytes";
    Handshake other(Side::client, kKey, kClientNonce);
    const auto begun = std::span(challenge).subspan(kFrameHeaderBytes, sizeof(Key) + length);
    EXPECT_EQ(other.onFrame(Frame{FrameType::challenge, 0, 0, begun}, reply), State::refused) << length << " bytes";
    EXPECT_TRUE(reply.empty());
  }
}

TEST(Handshake, ParserRefusesFramesWithThe64BitsOfVersion3) {
  for (const auto& [type, length] : {std::pair{FrameType::challenge, 24U}, std::pair{FrameType::proof, 8U}}) {
    auto bytes = encodeFrame(FrameType::hello, 0, Key{});
    bytes[4] = static_cast<std::uint8_t>(type);
    bytes[8] = static_cast<std::uint8_t>(length);
    bytes.resize(kFrameHeaderBytes + length);
    FrameParser parser(kHandshakeFrames);
    parser.feed(bytes);
    EXPECT_FALSE(parser.next());
    EXPECT_NE(parser.complaint().find("cannot have"), std::string::npos) << parser.complaint();
  }
}

// From Python's hashlib.blake2b: ranks may run different builds.
TEST(Handshake, ProofsCoverTheSideAndBothNonces) {
  Handshake client(Side::client, kKey, kClientNonce);
  Handshake server(Side::server, kKey, kServerNonce);
  const auto challenge = deliver(client.start(), server);
  const auto proof = deliver(challenge, client);
  constexpr Proof kServers = {0xfe, 0x86, 0x4a, 0x5b, 0x30, 0x22, 0xfd, 0x3b, 0x0a, 0x5c, 0xea,
                              0x3a, 0x8f, 0x5f, 0x3e, 0x7e, 0x5d, 0xb5, 0x4c, 0xf3, 0x31, 0xd0,
                              0x43, 0x34, 0xfb, 0xa6, 0xe5, 0x75, 0xcb, 0xd4, 0x21, 0x91};
  constexpr Proof kClients = {0x7e, 0x07, 0xd0, 0x06, 0x34, 0x43, 0x65, 0xa1, 0x53, 0x17, 0xe5,
                              0x99, 0xbc, 0xf1, 0x52, 0xe2, 0x9f, 0x06, 0x13, 0x5c, 0x25, 0xa3,
                              0xb7, 0x7e, 0x4d, 0xec, 0xc7, 0x0f, 0x2c, 0xec, 0x65, 0x80};
  EXPECT_TRUE(std::equal(kServers.begin(), kServers.end(), challenge.end() - sizeof(Proof), challenge.end()));
  EXPECT_TRUE(std::equal(kClients.begin(), kClients.end(), proof.begin() + kFrameHeaderBytes, proof.end()));
}

TEST(Handshake, AProofIsWorthlessForAnotherConnection) {
  Handshake client(Side::client, kKey, kClientNonce);
  Handshake first(Side::server, kKey, kServerNonce);
  const auto proof = deliver(deliver(client.start(), first), client);
  Handshake second(Side::server, kKey, Key{4});
  deliver(client.start(), second);
  deliver(proof, second);
  EXPECT_EQ(second.state(), State::refused);
}

// Each purpose has a key of its own, so what one listener has seen does not open another one.
TEST(Handshake, AProofIsWorthlessForAnotherPurpose) {
  const Key group = deriveKey(kKey, "session");
  Handshake client(Side::client, deriveKey(group, "puts"), kClientNonce);
  Handshake first(Side::server, deriveKey(group, "puts"), kServerNonce);
  const auto hello = client.start();
  const auto proof = deliver(deliver(hello, first), client);
  Handshake second(Side::server, deriveKey(group, "fd"), kServerNonce);  // even with the same nonces
  deliver(hello, second);
  deliver(proof, second);
  EXPECT_EQ(second.state(), State::refused);
  EXPECT_TRUE(second.wrongKey());
}

// A challenged stranger cannot let another server compute the answer, because proofs say which side made them.
TEST(Handshake, TheServersProofIsNotAClientsProof) {
  Handshake victim(Side::server, kKey, kServerNonce);
  const auto challenge = deliver(Handshake(Side::client, kKey, kClientNonce).start(), victim);
  const std::vector<std::uint8_t> serversProof(challenge.end() - sizeof(Proof), challenge.end());
  deliver(encodeFrame(FrameType::proof, 0, serversProof), victim);
  EXPECT_EQ(victim.state(), State::refused);
}

TEST(Handshake, FramesOutOfOrderAreRefused) {
  for (const FrameType type : {FrameType::challenge, FrameType::proof}) {
    Handshake server(Side::server, kKey, kServerNonce);
    deliver(encodeFrame(type, 0, std::vector<std::uint8_t>(type == FrameType::proof ? 32 : 48)), server);
    EXPECT_EQ(server.state(), State::refused);
  }
  Handshake server(Side::server, kKey, kServerNonce);
  const auto hello = Handshake(Side::client, kKey, kClientNonce).start();
  deliver(hello, server);
  deliver(hello, server);
  EXPECT_EQ(server.state(), State::refused);
}

}  // namespace
}  // namespace moe::test
