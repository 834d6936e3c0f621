// What goes to a rank of another domain, whose window is not mapped here: bytes of this rank's window to its window, or
// one word. Steps post puts (the policy operation `put`); a transport carries them.
//
// Order: two ranks may have several connections, and a put says which one it takes. A word lands after all bytes and
// words that were posted before it to that rank by that connection. Nothing else is ordered, not even the bytes within
// one put. Bytes may wait for the next word on their connection before they leave.
#pragma once

#include "device/lanes.h"

namespace moe {

struct Put {
  std::uint64_t target;      // offset in the receiver's window
  std::uint64_t source;      // offset in this rank's window; of a word: the word
  std::uint32_t bytes;       // 0: a word of 8 bytes. Else multiples of 4, as are the offsets
  std::uint16_t to;          // rank
  std::uint16_t connection;  // any number: a transport takes it modulo those that it has with a rank
};

// `connection`: only its lowest bits count.
MOE_HOST_DEVICE constexpr Put putBytes(int to, std::uint64_t target, std::uint64_t source, std::uint32_t bytes,
                                       std::uint64_t connection = 0) {
  return {target, source, bytes, static_cast<std::uint16_t>(to), static_cast<std::uint16_t>(connection)};
}
MOE_HOST_DEVICE constexpr Put putWord(int to, std::uint64_t target, std::uint64_t word, std::uint64_t connection = 0) {
  return putBytes(to, target, word, 0, connection);
}

}  // namespace moe
