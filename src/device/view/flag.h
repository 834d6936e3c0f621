// The one synchronisation object of the library: a naturally aligned 64-bit word that only grows. The high 40 bits are
// the epoch that the word belongs to. The low 24 bits count the shares of an announcement that is in progress. With 40
// bits of epoch the word lasts 127 days of uninterrupted traffic at 100,000 operations per second; 32 bits would last
// 12 h.
#pragma once

#include "device/lanes.h"

namespace moe {

using Flag = std::uint64_t;

inline constexpr int kFlagValueBits = 24;
inline constexpr std::int64_t kFlagValueMax = (std::int64_t{1} << kFlagValueBits) - 1;

MOE_HOST_DEVICE constexpr Flag flagWord(std::uint64_t epoch, std::int64_t value = 0) {
  return epoch << kFlagValueBits | static_cast<std::uint64_t>(value);
}

// The share that each of the `parts` of an announcement adds to the word. The word's epoch grows by one, and only when
// the last part has been added.
MOE_HOST_DEVICE constexpr Flag announcementShare(bool first, int parts) {
  return first ? flagWord(1) - static_cast<Flag>(parts - 1) : 1;
}

// A flag that counts rows too. Its lowest bits are the number of rows. Each epoch adds the difference to the previous
// number together with a share. Therefore the row bits never carry into the bits above, where shares are counted.
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
