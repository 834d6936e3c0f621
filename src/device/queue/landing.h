// Landing words: 32-bit words whose value shows that they have arrived, so that rows need no flag after them. An empty
// word is 0. The sender stores the complement of its value, and the reader restores 0. Therefore a value of all ones
// cannot be sent. In rows of floats this value is a NaN (or two, in 16-bit types), and another NaN is sent instead.
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
MOE_LANES HalfQuad toLanding(const HalfQuad& piece) {
  return {toLanding(piece.x), toLanding(piece.y)};
}
MOE_LANES HalfQuad fromLanding(const HalfQuad& piece) {
  return {fromLanding(piece.x), fromLanding(piece.y)};
}
MOE_LANES bool hasLanded(std::uint32_t word) {
  return word != kNothingLanded;
}
MOE_LANES bool hasLanded(const HalfQuad& piece) {
  return hasLanded(piece.x) && hasLanded(piece.y);
}
MOE_LANES bool hasLanded(const Quad& piece) {
  return piece.x != kNothingLanded && piece.y != kNothingLanded && piece.z != kNothingLanded &&
         piece.w != kNothingLanded;
}

}  // namespace moe
