// 4-bit floats: OCP E2M1, the elements of MXFP4 and NVFP4, in plain arithmetic, so that GPUs without an instruction for
// them make the same bits. A byte has two, the even element in its low half.
#pragma once

#include "device/rows/elements.h"

namespace moe {

// The format has a sign, 2 bits of exponent biased by 1, and 1 of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6. It has neither
// infinity nor NaN.
struct E2m1 {
  static constexpr float kMax = 6.0f;
  static constexpr int kMaxExponent = 2;  // 6 is 1.5 * 2^2
  static constexpr std::uint32_t kMaxFraction = 0x400000u;

  static MOE_LANES float toFloat(std::uint32_t code) {
    const std::uint32_t sign = (code & 8u) << 28, magnitude = code & 7u;
    const std::uint32_t bits = magnitude == 0 ? 0u : magnitude == 1 ? 0x3f000000u : (magnitude << 22) + 0x3f000000u;
    return bitsToFloat(sign | bits);
  }
  // The code of a magnitude. Rounds to nearest even and saturates. A NaN becomes 0. Both ways are computed, because a
  // warp that branches for each element takes longer.
  static MOE_LANES std::uint32_t fromMagnitude(float magnitude) {
    const float clamped = smallerNumber(largerNumber(0.0f, magnitude), kMax);
    const std::uint32_t bits = floatToBits(clamped);
    // Below 1 the adder rounds: its last place is 0.5 here, as that of a code.
    const std::uint32_t subnormal = floatToBits(addRounded(clamped, 4194304.0f)) - 0x4a800000u;
    const std::uint32_t normal = (bits - 0x3f000000u + 0x1fffffu + (bits >> 22 & 1u)) >> 22;
    return bits < 0x3f800000u ? subnormal : normal;
  }
};

// The codes of value[i] * inverse, from the low half of the low byte upwards.
MOE_LANES std::uint32_t quantiseFourE2m1(const FourFloats& from, float inverse) {
  std::uint32_t codes = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t bits = floatToBits(multiplyRounded(from.value[i], inverse)) & kMagnitudeBits;
    codes |= (E2m1::fromMagnitude(bitsToFloat(bits)) | (from.signs >> (8 * i + 4) & 8u)) << 4 * i;
  }
  return codes;
}

}  // namespace moe
