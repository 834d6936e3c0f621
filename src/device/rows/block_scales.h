// The scales of small blocks: MXFP8, MXFP4 (OCP Microscaling Formats 1.0) and NVFP4. There is no least amax: a block of
// zeros has the smallest scale and codes of zero. These are functions of one lane.
#pragma once

#include "device/rows/e2m1.h"
#include "device/rows/fp8.h"

namespace moe {

// A scale of one byte, and the factor for the block's elements.
struct ByteScale {
  std::uint32_t byte;
  float inverse;
};

// E8M0: 2^(byte - 127), the smallest power of two that is not below amax / Code::kMax; 2^-127 for less. OCP's example
// rounds the exponent down, which saturates elements above the largest code; this rounds it up, so that none is. A NaN,
// which only blocks of E2M1 can have as their amax, has the scale NaN and codes of zero.
template <class Code>
MOE_LANES ByteScale mxScale(float amax) {
  if ((floatToBits(amax) & kMagnitudeBits) > kInfinityBits && Code::kMax == E2m1::kMax) return {0xffu, 0.0f};
  const std::uint32_t bits = floatToBits(clampAmax(amax, 0.0f));
  const int exponent =
      static_cast<int>(bits >> 23) - Code::kMaxExponent + ((bits & 0x7fffffu) > Code::kMaxFraction ? 1 : 0);
  const std::uint32_t byte = exponent > 0 ? static_cast<std::uint32_t>(exponent) : 0u;
  return {byte, bitsToFloat((254 - byte) << 23)};
}

// NVFP4: e4m3 of global * amax / 6, so that an element is about code * scale / global. A scale that rounds to 0 has
// codes of zero. A NaN has the scale NaN and codes of zero. Signs stay.
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
