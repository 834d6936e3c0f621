// SipHash-2-4 (J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012) and keys derived
// with it. It proves knowledge of the group's secret on every connection. It encrypts nothing.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace moe::bootstrap {

using Key = std::array<std::uint8_t, 16>;

std::uint64_t sipHash24(const Key& key, std::span<const std::uint8_t> message);

// A key for one purpose. It reveals nothing about `key`, nor about keys of other purposes or contexts.
Key deriveKey(const Key& key, std::string_view purpose, std::span<const std::uint8_t> context = {});

// 16 bytes of the kernel's random generator; throws if there are none.
Key randomKey();

}  // namespace moe::bootstrap
