// Landing words: 32-bit words that say themselves that they have come, so that rows need no flag behind them. A word is
// 0 while nothing is there. Who sends stores the complement of its value; who takes it leaves 0 again. All ones cannot
// be sent: in rows of floats it is a NaN (two of them, of 16-bit types), for which another NaN goes.
#pragma once

#include "device/lanes.h"

namespace moe {

inline constexpr std::uint32_t kNothingLanded = 0;

MOE_LANES std::uint32_t toLanding(std::uint32_t value) {
  return value == 0xffffffffu ? ~0x7fffffffu : ~value;
}
MOE_LANES std::uint32_t fromLanding(std::uint32_t word) {
  return ~word;
}

MOE_LANES Quad toLanding(const Quad& piece) {
  return {toLanding(piece.x), toLanding(piece.y), toLanding(piece.z), toLanding(piece.w)};
}
MOE_LANES Quad fromLanding(const Quad& piece) {
  return {fromLanding(piece.x), fromLanding(piece.y), fromLanding(piece.z), fromLanding(piece.w)};
}
MOE_LANES bool hasLanded(const Quad& piece) {
  return piece.x != kNothingLanded && piece.y != kNothingLanded && piece.z != kNothingLanded &&
         piece.w != kNothingLanded;
}

}  // namespace moe
