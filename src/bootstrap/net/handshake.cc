#include "bootstrap/net/handshake.h"

#include <algorithm>

#include "bootstrap/net/wire.h"

namespace moe::bootstrap {

Proof Handshake::proof(Side by, const Key& clientNonce, const Key& serverNonce) const {
  Writer message;
  message.u8(by == Side::client ? 'C' : 'S');  // a proof cannot be sent back as the other side's
  message.bytes(clientNonce);
  message.bytes(serverNonce);
  return proofOf(key_, message.view());
}

// Whether `payload` is exactly that side's proof.
bool Handshake::proves(Side by, std::span<const std::uint8_t> payload, const Key& clientNonce,
                       const Key& serverNonce) const {
  Proof claimed{};
  if (payload.size() != claimed.size()) return false;
  std::copy(payload.begin(), payload.end(), claimed.begin());
  return sameProof(claimed, proof(by, clientNonce, serverNonce));
}

std::vector<std::uint8_t> Handshake::start() const {
  if (side_ == Side::server) return {};
  return encodeFrame(FrameType::hello, 0, nonce_);
}

Handshake::State Handshake::onFrame(const Frame& frame, std::vector<std::uint8_t>& reply) {
  if (state_ != State::running) return state_ = State::refused;
  const bool server = side_ == Side::server;
  if (server && frame.type == FrameType::hello && !helloSeen_) return state_ = onHello(frame, reply);
  if (server && frame.type == FrameType::proof && helloSeen_) return state_ = onProof(frame);
  if (!server && frame.type == FrameType::challenge) return state_ = onChallenge(frame, reply);
  return state_ = State::refused;
}

Handshake::State Handshake::onHello(const Frame& frame, std::vector<std::uint8_t>& reply) {
  Reader(frame.payload).bytes(peerNonce_);
  helloSeen_ = true;
  Writer challenge;
  challenge.bytes(nonce_);
  challenge.bytes(proof(Side::server, peerNonce_, nonce_));
  const auto bytes = encodeFrame(FrameType::challenge, 0, challenge.view());
  reply.insert(reply.end(), bytes.begin(), bytes.end());
  return State::running;
}

Handshake::State Handshake::onChallenge(const Frame& frame, std::vector<std::uint8_t>& reply) {
  Reader in(frame.payload);
  in.bytes(peerNonce_);
  if (!proves(Side::server, in.rest(), nonce_, peerNonce_)) {
    wrongKey_ = true;
    return State::refused;
  }
  Writer answer;
  answer.bytes(proof(Side::client, nonce_, peerNonce_));
  const auto bytes = encodeFrame(FrameType::proof, 0, answer.view());
  reply.insert(reply.end(), bytes.begin(), bytes.end());
  return State::done;
}

Handshake::State Handshake::onProof(const Frame& frame) {
  if (proves(Side::client, frame.payload, peerNonce_, nonce_)) return State::done;
  wrongKey_ = true;
  return State::refused;
}

}  // namespace moe::bootstrap
