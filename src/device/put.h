// What goes to a rank of another domain, whose window is not mapped here: bytes of this rank's window to its window, or
// one word. Steps post puts (the policy operation `put`); a transport carries them.
//
// Order: puts to one rank are carried by one queue. A word lands after all bytes and words to that rank that were
// posted before it; nothing else is ordered, not even the bytes of one put among each other. Bytes may wait for the
// next word to their rank before they leave.
#pragma once

#include "device/lanes.h"

namespace moe {

struct Put {
  std::uint64_t target;  // offset in the receiver's window
  std::uint64_t source;  // offset in this rank's window; of a word: the word
  std::uint32_t bytes;   // 0: a word of 8 bytes. Else multiples of 4, as are the offsets
  std::int32_t to;       // rank
};

MOE_HOST_DEVICE constexpr Put putWord(int to, std::uint64_t target, std::uint64_t word) {
  return {target, word, 0, to};
}

}  // namespace moe
