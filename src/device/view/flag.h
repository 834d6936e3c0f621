// The one synchronisation object of the library: a naturally aligned 64-bit word that only grows. The epoch it belongs
// to is in the high 40 bits; the low 24 count the shares of an announcement that is under way. 40 bits of epoch: at
// 100,000 operations per second the word lasts 127 days of uninterrupted traffic; 32 would last 12 h.
#pragma once

#include "device/lanes.h"

namespace moe {

using Flag = std::uint64_t;

inline constexpr int kFlagValueBits = 24;
inline constexpr std::int64_t kFlagValueMax = (std::int64_t{1} << kFlagValueBits) - 1;

MOE_HOST_DEVICE constexpr Flag flagWord(std::uint64_t epoch, std::int64_t value = 0) {
  return epoch << kFlagValueBits | static_cast<std::uint64_t>(value);
}

// What the parts of an announcement add up to: `parts` of them, each adding its share to the word. The word's epoch
// grows by one, and only when the last part is there.
MOE_HOST_DEVICE constexpr Flag announcementShare(bool first, int parts) {
  return first ? flagWord(1) - static_cast<Flag>(parts - 1) : 1;
}

// A word that counts rows too: the lowest bits have their number, which each epoch changes by the difference to the one
// before, together with a share. So nothing carries, and shares count in the bits above.
inline constexpr int kFlagRowBits = 12;
inline constexpr int kFlagRowsMax = (1 << kFlagRowBits) - 1, kRowSharesMax = 1 << (kFlagValueBits - kFlagRowBits);
MOE_HOST_DEVICE constexpr Flag rowsShare(bool first, int parts) {
  const Flag others = static_cast<Flag>(parts - 1) << kFlagRowBits;
  return first ? flagWord(1) - others : Flag{1} << kFlagRowBits;
}
MOE_HOST_DEVICE constexpr int flagRows(Flag word) {
  return static_cast<int>(word & static_cast<Flag>(kFlagRowsMax));
}

MOE_HOST_DEVICE constexpr std::uint64_t flagEpoch(Flag word) {
  return word >> kFlagValueBits;
}
MOE_HOST_DEVICE constexpr int flagValue(Flag word) {
  return static_cast<int>(word & ((Flag{1} << kFlagValueBits) - 1));
}

}  // namespace moe
