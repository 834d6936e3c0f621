#include "bootstrap/net/keyed_hash.h"

#include <sodium/utils.h>
#include <sys/random.h>

#include <sodium/crypto_generichash_blake2b.h>

#include "base/error.h"
#include "bootstrap/net/wire.h"

namespace moe::bootstrap {
namespace {

// Which use a result is for. Results with different personalisations are unrelated, whatever key and message are.
using Personalisation = std::array<std::uint8_t, crypto_generichash_blake2b_PERSONALBYTES>;
constexpr Personalisation kForProofs = {'m', 'o', 'e', 'c', 'o', 'm', 'm', ' ', 'p', 'r', 'o', 'o', 'f'};
constexpr Personalisation kForKeys = {'m', 'o', 'e', 'c', 'o', 'm', 'm', ' ', 'k', 'e', 'y'};

// sodium_init() is not called: it ends the process if there is no source of random numbers, which this function does
// not need. Without it the portable code runs.
template <std::size_t kBytes>
std::array<std::uint8_t, kBytes> keyedHash(const Key& key, const Personalisation& use,
                                           std::span<const std::uint8_t> message) {
  static_assert(std::tuple_size_v<Key> >= crypto_generichash_blake2b_KEYBYTES_MIN);
  static_assert(kBytes >= crypto_generichash_blake2b_BYTES_MIN && kBytes <= crypto_generichash_blake2b_BYTES_MAX);
  std::array<std::uint8_t, kBytes> result{};
  // It fails only for lengths outside of these bounds.
  (void)crypto_generichash_blake2b_salt_personal(result.data(), result.size(), message.data(), message.size(),
                                                 key.data(), key.size(), nullptr, use.data());
  return result;
}

}  // namespace

Proof proofOf(const Key& key, std::span<const std::uint8_t> message) {
  return keyedHash<std::tuple_size_v<Proof>>(key, kForProofs, message);
}

bool sameProof(const Proof& a, const Proof& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

Key deriveKey(const Key& key, std::string_view purpose, std::span<const std::uint8_t> context) {
  Writer message;
  message.u32(static_cast<std::uint32_t>(purpose.size()));  // so that purpose and context cannot be confused
  message.text(purpose);
  message.bytes(context);
  return keyedHash<std::tuple_size_v<Key>>(key, kForKeys, message.view());
}

Key randomKey() {
  Key key{};
  std::size_t filled = 0;
  while (filled < key.size()) {
    const ssize_t got = ::getrandom(key.data() + filled, key.size() - filled, 0);
    if (got < 0 && errno != EINTR) throw systemError("getrandom");
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return key;
}

}  // namespace moe::bootstrap
