#include "bootstrap/net/handshake.h"

#include "bootstrap/net/wire.h"

namespace moe::bootstrap {

std::uint64_t Handshake::proof(Side by, const Key& clientNonce, const Key& serverNonce) const {
  Writer message;
  message.u8(by == Side::Client ? 'C' : 'S');  // a proof cannot be sent back as the other side's
  message.bytes(clientNonce);
  message.bytes(serverNonce);
  return sipHash24(key_, message.view());
}

std::vector<std::uint8_t> Handshake::start() const {
  if (side_ == Side::Server) return {};
  return encodeFrame(FrameType::Hello, 0, nonce_);
}

Handshake::State Handshake::onFrame(const Frame& frame, std::vector<std::uint8_t>& reply) {
  if (state_ != State::Running) return state_ = State::Refused;
  const bool server = side_ == Side::Server;
  if (server && frame.type == FrameType::Hello && !helloSeen_) return state_ = onHello(frame, reply);
  if (server && frame.type == FrameType::Proof && helloSeen_) return state_ = onProof(frame);
  if (!server && frame.type == FrameType::Challenge) return state_ = onChallenge(frame, reply);
  return state_ = State::Refused;
}

Handshake::State Handshake::onHello(const Frame& frame, std::vector<std::uint8_t>& reply) {
  Reader(frame.payload).bytes(peerNonce_);
  helloSeen_ = true;
  Writer challenge;
  challenge.bytes(nonce_);
  challenge.u64(proof(Side::Server, peerNonce_, nonce_));
  const auto bytes = encodeFrame(FrameType::Challenge, 0, challenge.view());
  reply.insert(reply.end(), bytes.begin(), bytes.end());
  return State::Running;
}

Handshake::State Handshake::onChallenge(const Frame& frame, std::vector<std::uint8_t>& reply) {
  Reader in(frame.payload);
  in.bytes(peerNonce_);
  if (in.u64() != proof(Side::Server, nonce_, peerNonce_)) {
    wrongKey_ = true;
    return State::Refused;
  }
  Writer answer;
  answer.u64(proof(Side::Client, nonce_, peerNonce_));
  const auto bytes = encodeFrame(FrameType::Proof, 0, answer.view());
  reply.insert(reply.end(), bytes.begin(), bytes.end());
  return State::Done;
}

Handshake::State Handshake::onProof(const Frame& frame) {
  if (Reader(frame.payload).u64() == proof(Side::Client, peerNonce_, nonce_)) return State::Done;
  wrongKey_ = true;
  return State::Refused;
}

}  // namespace moe::bootstrap
