// Keyed BLAKE2b (RFC 7693), computed by libsodium: proofs of knowing a key, and keys derived from the group's secret.
// It encrypts nothing. docs/decisions/0114-handshake-proof.md has the reasons.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace moe::bootstrap {

using Key = std::array<std::uint8_t, 16>;
using Proof = std::array<std::uint8_t, 32>;

// Shows that its maker knows `key`. Nobody can compute it for another message without the key.
Proof proofOf(const Key& key, std::span<const std::uint8_t> message);

// Takes the same time wherever the two differ, so that time does not tell a forger how much was right.
bool sameProof(const Proof& a, const Proof& b);

// A key for one purpose. It reveals nothing about `key`, nor about proofs or keys of other purposes or contexts.
Key deriveKey(const Key& key, std::string_view purpose, std::span<const std::uint8_t> context = {});

// 16 bytes of the kernel's random generator; throws if there are none.
Key randomKey();

}  // namespace moe::bootstrap
