// The challenge-response that opens every connection of the bootstrap. Both sides prove that they know the key, and the
// key never travels. The client sends Hello with a nonce, gets the server's nonce and proof, checks the proof, and
// answers with its own. This keeps strangers out. It does not protect the following bytes from an attacker who can
// change traffic on the wire. The code is pure: frames in, frames out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/net/frame.h"
#include "bootstrap/net/keyed_hash.h"

namespace moe::bootstrap {

class Handshake {
 public:
  enum class Side { client, server };
  enum class State { running, done, refused };

  Handshake(Side side, const Key& key, const Key& nonce) : side_(side), key_(key), nonce_(nonce) {}

  std::vector<std::uint8_t> start() const;  // first bytes of a client; empty for a server

  // Takes one frame. Appends what must be sent to `reply`.
  State onFrame(const Frame& frame, std::vector<std::uint8_t>& reply);

  Side side() const { return side_; }
  State state() const { return state_; }
  bool wrongKey() const { return wrongKey_; }  // refused because the other side's proof did not match

 private:
  Proof proof(Side by, const Key& clientNonce, const Key& serverNonce) const;
  bool proves(Side by, std::span<const std::uint8_t> payload, const Key& clientNonce, const Key& serverNonce) const;
  State onHello(const Frame& frame, std::vector<std::uint8_t>& reply);
  State onChallenge(const Frame& frame, std::vector<std::uint8_t>& reply);
  State onProof(const Frame& frame);

  Side side_;
  Key key_;
  Key nonce_;
  Key peerNonce_{};
  bool helloSeen_ = false;
  bool wrongKey_ = false;
  State state_ = State::running;
};

}  // namespace moe::bootstrap
