#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "bootstrap/net/siphash.h"

namespace moe::test {
namespace {

using namespace bootstrap;

Key paperKey() {
  Key key{};
  std::iota(key.begin(), key.end(), std::uint8_t{0});
  return key;
}

std::uint64_t hashOfLength(std::size_t length) {
  std::vector<std::uint8_t> message(length);
  std::iota(message.begin(), message.end(), std::uint8_t{0});
  return sipHash24(paperKey(), message);
}

// Appendix A of the paper, and entries of the reference implementation's vector table.
TEST(SipHash, AgreesWithThePaper) {
  EXPECT_EQ(hashOfLength(15), 0xa129ca6149be45e5ULL);
  EXPECT_EQ(hashOfLength(0), 0x726fdb47dd0e0e31ULL);
  EXPECT_EQ(hashOfLength(1), 0x74f839c593dc67fdULL);
  EXPECT_EQ(hashOfLength(8), 0x93f5f5799a932462ULL);
}

TEST(SipHash, DerivedKeysDifferByKeyPurposeAndContext) {
  const Key base = deriveKey(paperKey(), "ab", {});
  const std::vector<std::uint8_t> b = {'b'};
  EXPECT_NE(base, deriveKey(Key{}, "ab", {}));
  EXPECT_NE(base, deriveKey(paperKey(), "ac", {}));
  EXPECT_NE(base, deriveKey(paperKey(), "a", b));
  EXPECT_EQ(base, deriveKey(paperKey(), "ab", {}));
}

TEST(SipHash, RandomKeysDiffer) {
  EXPECT_NE(randomKey(), randomKey());
}

}  // namespace
}  // namespace moe::test
