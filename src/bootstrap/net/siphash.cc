#include "bootstrap/net/siphash.h"

#include <sys/random.h>

#include <bit>
#include <vector>

#include "base/error.h"
#include "bootstrap/net/wire.h"

namespace moe::bootstrap {
namespace {

struct SipState {
  std::uint64_t v0, v1, v2, v3;

  void round() {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  }

  void absorb(std::uint64_t word) {
    v3 ^= word;
    round();
    round();
    v0 ^= word;
  }
};

std::uint64_t loadWord(std::span<const std::uint8_t> bytes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) word |= std::uint64_t{bytes[i]} << (8 * i);
  return word;
}

}  // namespace

std::uint64_t sipHash24(const Key& key, std::span<const std::uint8_t> message) {
  const std::uint64_t k0 = loadWord(std::span(key).first(8));
  const std::uint64_t k1 = loadWord(std::span(key).last(8));
  SipState state{k0 ^ 0x736f6d6570736575ULL, k1 ^ 0x646f72616e646f6dULL, k0 ^ 0x6c7967656e657261ULL,
                 k1 ^ 0x7465646279746573ULL};
  const std::uint64_t lengthByte = std::uint64_t{message.size() & 0xff} << 56;
  while (message.size() >= 8) {
    state.absorb(loadWord(message.first(8)));
    message = message.subspan(8);
  }
  state.absorb(loadWord(message) | lengthByte);
  state.v2 ^= 0xff;
  for (int i = 0; i < 4; ++i) state.round();
  return state.v0 ^ state.v1 ^ state.v2 ^ state.v3;
}

Key deriveKey(const Key& key, std::string_view purpose, std::span<const std::uint8_t> context) {
  Writer derived;
  for (std::uint8_t half = 0; half < 2; ++half) {
    Writer message;
    message.u8(half);
    message.u32(static_cast<std::uint32_t>(purpose.size()));  // so that purpose and context cannot be confused
    message.text(purpose);
    message.bytes(context);
    derived.u64(sipHash24(key, message.view()));
  }
  Key result{};
  std::copy(derived.view().begin(), derived.view().end(), result.begin());
  return result;
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
