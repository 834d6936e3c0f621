#include <gtest/gtest.h>

#include <algorithm>

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

TEST(Handshake, ServerRefusesAWrongProof) {
  Handshake client(Side::client, kKey, kClientNonce);
  Handshake server(Side::server, kKey, kServerNonce);
  auto proof = deliver(deliver(client.start(), server), client);
  proof.back() ^= 1;
  deliver(proof, server);
  EXPECT_EQ(server.state(), State::refused);
  EXPECT_TRUE(server.wrongKey());
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

// A challenged stranger cannot let another server compute the answer, because proofs say which side made them.
TEST(Handshake, TheServersProofIsNotAClientsProof) {
  Handshake victim(Side::server, kKey, kServerNonce);
  const auto challenge = deliver(Handshake(Side::client, kKey, kClientNonce).start(), victim);
  const std::vector<std::uint8_t> serversProof(challenge.end() - 8, challenge.end());
  deliver(encodeFrame(FrameType::proof, 0, serversProof), victim);
  EXPECT_EQ(victim.state(), State::refused);
}

TEST(Handshake, FramesOutOfOrderAreRefused) {
  for (const FrameType type : {FrameType::challenge, FrameType::proof}) {
    Handshake server(Side::server, kKey, kServerNonce);
    deliver(encodeFrame(type, 0, std::vector<std::uint8_t>(type == FrameType::proof ? 8 : 24)), server);
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
