// The expected numbers come from RFC 7693 and, for personalised hashes, from Python's hashlib.blake2b.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <sodium/crypto_generichash_blake2b.h>

#include "bootstrap/net/keyed_hash.h"

namespace moe::test {
namespace {

using namespace bootstrap;
using Bytes = std::vector<std::uint8_t>;

std::string hex(std::span<const std::uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

Bytes counting(std::size_t count) {
  Bytes bytes(count);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}

Key countingKey() {
  Key key{};
  std::iota(key.begin(), key.end(), std::uint8_t{0});
  return key;
}

Bytes bytesOf(std::string_view text) {
  return {text.begin(), text.end()};
}

TEST(KeyedHash, LibsodiumAgreesWithAppendixAOfRfc7693) {
  const Bytes message = bytesOf("abc");
  std::array<std::uint8_t, 64> result{};
  crypto_generichash_blake2b(result.data(), result.size(), message.data(), message.size(), nullptr, 0);
  EXPECT_EQ(hex(result),
            "ba80a53f981c4d0d6a2797b69f12f6e94c212f14685ac4b74b12bb6fdbffa2d1"
            "7d87c5392aab792dc252d5de4533cc9518d38aa8dbf1925ab92386edd4009923");
}

// Appendix E of the RFC: hashes of keyed and unkeyed messages of many lengths, hashed together.
TEST(KeyedHash, LibsodiumPassesTheSelfTestOfRfc7693) {
  const auto fill = [](std::size_t length) {
    Bytes bytes(length);
    std::uint32_t a = 0xDEAD4BADU * static_cast<std::uint32_t>(length), b = 1;
    for (std::uint8_t& byte : bytes) {
      const std::uint32_t sum = a + b;
      a = b;
      b = sum;
      byte = static_cast<std::uint8_t>(sum >> 24);
    }
    return bytes;
  };
  const auto hash = [](const Bytes& message, const Bytes& key, std::size_t length) {
    Bytes result(length);
    crypto_generichash_blake2b(result.data(), length, message.data(), message.size(), key.data(), key.size());
    return result;
  };
  Bytes all;
  for (const std::size_t length : {20U, 32U, 48U, 64U}) {
    for (const std::size_t messageLength : {0U, 3U, 128U, 129U, 255U, 1024U}) {
      for (const Bytes& key : {Bytes{}, fill(length)}) {
        const Bytes one = hash(fill(messageLength), key, length);
        all.insert(all.end(), one.begin(), one.end());
      }
    }
  }
  EXPECT_EQ(hex(hash(all, {}, 32)), "c23a7800d98123bd10f506c61e29da5603d763b8bbad2e737f5e765a7bccd475");
}

TEST(KeyedHash, ProofsAreKeyedBlake2bWithAPersonalisation) {
  EXPECT_EQ(hex(proofOf(countingKey(), {})), "9f12b4f9124909acdfdb4fb485ce3c2b61ae683f55c31534de16d9d97acf85d4");
  EXPECT_EQ(hex(proofOf(countingKey(), bytesOf("abc"))),
            "ee813c8d2ecf875de9827deda78457510167eb0adb98e5290f49c46fde4dea40");
  EXPECT_EQ(hex(proofOf(countingKey(), counting(200))),
            "ca136b8f4f89480904d8c5dd587b742b4644ecc4d5b3010d30d4b988105f06e6");
}

TEST(KeyedHash, KeysAreKeyedBlake2bWithAnotherPersonalisation) {
  EXPECT_EQ(hex(deriveKey(countingKey(), "session", counting(16))), "ef933b3932a1db82fbea1ceeecec8d25");
  EXPECT_EQ(hex(deriveKey(countingKey(), "rendezvous")), "e3411f8a9a1808246ca1c52112f8bf79");
}

TEST(KeyedHash, DerivedKeysDifferByKeyPurposeAndContext) {
  const Key base = deriveKey(countingKey(), "ab");
  EXPECT_NE(base, deriveKey(Key{}, "ab"));
  EXPECT_NE(base, deriveKey(countingKey(), "ac"));
  EXPECT_NE(base, deriveKey(countingKey(), "a", bytesOf("b")));
  EXPECT_EQ(base, deriveKey(countingKey(), "ab"));
}

TEST(KeyedHash, EveryPurposeAndRankHasAKeyOfItsOwn) {
  std::set<Key> keys;
  std::size_t made = 0;
  for (const char* purpose :
       {"rendezvous", "session", "fd", "fd name", "puts", "recorder", "watch", "job port", "job secret"}) {
    for (std::uint8_t rank = 0; rank < 100; ++rank) {
      const Bytes context = {rank, 0, 0, 0};
      keys.insert(deriveKey(countingKey(), purpose, context));
      ++made;
    }
  }
  EXPECT_EQ(keys.size(), made);
}

TEST(KeyedHash, AProofIsNoKey) {
  Bytes message = {7, 0, 0, 0};  // the bytes that deriveKey hashes for the purpose "session"
  const Bytes purpose = bytesOf("session");
  message.insert(message.end(), purpose.begin(), purpose.end());
  const Proof proof = proofOf(countingKey(), message);
  const Key key = deriveKey(countingKey(), "session");
  EXPECT_FALSE(std::equal(key.begin(), key.end(), proof.begin()));
}

TEST(KeyedHash, ComparesEveryBitOfAProof) {
  const Proof right = proofOf(countingKey(), {});
  EXPECT_TRUE(sameProof(right, Proof(right)));
  for (std::size_t bit = 0; bit < 8 * right.size(); ++bit) {
    Proof wrong = right;
    wrong[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    EXPECT_FALSE(sameProof(right, wrong)) << "bit " << bit;
  }
}

TEST(KeyedHash, RandomKeysDiffer) {
  EXPECT_NE(randomKey(), randomKey());
}

}  // namespace
}  // namespace moe::test
