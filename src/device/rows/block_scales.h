// Formats with small blocks: MXFP8, MXFP4 (OCP Microscaling Formats 1.0) and NVFP4. This file has the 4-bit floats of
// the last two, then the scales. amax has no lower bound: a block of zeros has the smallest scale and codes of zero.
// These are functions of one lane.
#pragma once

#include "device/rows/fp8.h"

namespace moe {

// ---- OCP E2M1, in plain arithmetic, so that GPUs without an instruction for it compute the same bits. A byte has two
// codes, the even element in its low half.

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
  // The code of a magnitude. It rounds to nearest even and saturates. A NaN becomes 0. Both the subnormal and the
  // normal code are computed, because a branch for each element takes a warp longer.
  static MOE_LANES std::uint32_t fromMagnitude(float magnitude) {
    const float clamped = smallerNumber(largerNumber(0.0f, magnitude), kMax);
    const std::uint32_t bits = floatToBits(clamped);
    // Below 1 the addition rounds to a code, because the last place of the sum and of a code is 0.5.
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

// ---- Scales

// A scale of one byte, and the factor for the elements of its block.
struct ByteScale {
  std::uint32_t byte;
  float inverse;
};

// E8M0: 2^(byte - 127), the smallest power of two that is not below amax / Code::kMax, and at least 2^-127. OCP's
// example rounds the exponent down, which saturates elements above the largest code. This code rounds it up, so that no
// element saturates. Only blocks of E2M1 can have a NaN as their amax; they get the scale NaN and codes of zero.
template <class Code>
MOE_LANES ByteScale mxScale(float amax) {
  if ((floatToBits(amax) & kMagnitudeBits) > kInfinityBits && Code::kMax == E2m1::kMax) return {0xffu, 0.0f};
  const std::uint32_t bits = floatToBits(clampAmax(amax, 0.0f));
  const int exponent =
      static_cast<int>(bits >> 23) - Code::kMaxExponent + ((bits & 0x7fffffu) > Code::kMaxFraction ? 1 : 0);
  const std::uint32_t byte = exponent > 0 ? static_cast<std::uint32_t>(exponent) : 0u;
  return {byte, bitsToFloat((254 - byte) << 23)};
}

// NVFP4: the scale is global * amax / 6 as e4m3, so that an element is about code * scale / global. If the scale rounds
// to 0, the codes are zero. A NaN gives the scale NaN and codes of zero. Signs are kept.
MOE_LANES ByteScale nvfp4Scale(float amax, float global) {
  constexpr ByteScale kNone{0, 0.0f}, kNan{E4m3::kNan, 0.0f};
  if ((floatToBits(amax) & kMagnitudeBits) > kInfinityBits) return kNan;
  const float wanted = divideRounded(multiplyRounded(global, clampAmax(amax, 0.0f)), E2m1::kMax);
  const std::uint32_t byte = E4m3::fromFloat(wanted) & 0x7fu;
  if (byte == 0) return kNone;
  if (byte == E4m3::kNan) return kNan;
  return {byte, divideRounded(global, E4m3::toFloat(byte))};
}

}  // namespace moe
