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
  // The code of a magnitude. It rounds to nearest even and saturates. A NaN becomes 0. There are two ways to compute
  // it.
  static MOE_LANES std::uint32_t fromMagnitude(float magnitude) {
#if defined(__CUDACC__)
    return byOneAddition(magnitude);
#else
    return byRanges(magnitude);
#endif
  }
  // An addition rounds. The last place of the number that is added is the distance of codes near the magnitude: 0.5
  // below 2, then 1, and 2 from 4 on, so it is 2^22, 2^23 or 2^24. Its last bits are 0, 2 or 4: the first code with
  // that distance, less its magnitude in distances. So the last bits of the sum are the code. These are the fewest
  // instructions, but a processor without wide vectors takes longer, because they depend on each other.
  static MOE_LANES std::uint32_t byOneAddition(float magnitude) {
    return sumWithCode(smallerNumber(largerNumber(0.0f, magnitude), kMax)) & 7u;
  }
  // The bits of that sum. Its low byte is the code. `clamped` is at most 6.
  static MOE_LANES std::uint32_t sumWithCode(float clamped) {
    return floatToBits(addRounded(clamped, bitsToFloat(numberToAdd(clamped))));
  }
  static MOE_LANES std::uint32_t numberToAdd(float clamped) {
    constexpr std::uint32_t kExponent = 1u << 23, kOne = 127;
    const std::uint32_t exponent = floatToBits(largerNumber(1.0f, clamped)) >> 23;
    return exponent * (kExponent + 2) + 22 * kExponent - 2 * kOne;
  }
  // The value of the code.
  static MOE_LANES float rounded(float clamped) {
    const float added = bitsToFloat(numberToAdd(clamped));
    return addRounded(addRounded(clamped, added), -added);
  }
  // Both the subnormal and the normal code are computed, because a branch for each element would take longer.
  static MOE_LANES std::uint32_t byRanges(float magnitude) {
    const float clamped = smallerNumber(largerNumber(0.0f, magnitude), kMax);
    const std::uint32_t bits = floatToBits(clamped);
    // Below 1 the addition rounds to a code, because the last place of the sum and of a code is 0.5.
    const std::uint32_t subnormal = floatToBits(addRounded(clamped, 4194304.0f)) - 0x4a800000u;
    const std::uint32_t normal = (bits - 0x3f000000u + 0x1fffffu + (bits >> 22 & 1u)) >> 22;
    return bits < 0x3f800000u ? subnormal : normal;
  }
};

// Eight E2M1 codes as floats. The two upper bytes of a float are looked up, and four codes are looked up at once.
struct E2m1Floats {
  std::uint32_t pairs[4];  // the upper halves of two floats each; their lower halves are 0

  static MOE_LANES E2m1Floats of(std::uint32_t codes) {
    const std::uint32_t magnitudes = codes & 0x77777777u;
    const Four first = Four::of(magnitudes, chooseBytes(codes, 0, 0x1100));
    const Four second = Four::of(magnitudes >> 16, chooseBytes(codes, 0, 0x3322));
    return {{first.pair(0x5140), first.pair(0x7362), second.pair(0x5140), second.pair(0x7362)}};
  }
  MOE_LANES float at(int i) const { return bitsToFloat(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xffff0000u); }

 private:
  struct Four {
    std::uint32_t high, low;  // a byte of each float

    // `doubled`: the byte with codes 0 and 1 twice, then that with codes 2 and 3 twice.
    static MOE_LANES Four of(std::uint32_t magnitudes, std::uint32_t doubled) {
      const std::uint32_t signs = (doubled << 4 & 0x00800080u) | (doubled & 0x80008000u);
      return {chooseBytes(0x3f3f3f00u, 0x40404040u, magnitudes) | signs,
              chooseBytes(0xc0800000u, 0xc0804000u, magnitudes)};
    }
    MOE_LANES std::uint32_t pair(std::uint32_t numbers) const { return chooseBytes(low, high, numbers); }
  };
};

// Byte `kByte` of eight words: those of the words 0, 2, 4, 6, and those of the words 1, 3, 5, 7.
struct BytesOfEight {
  std::uint32_t even, odd;

  template <int kByte>
  static MOE_LANES BytesOfEight of(const std::uint32_t (&word)[8]) {
    constexpr std::uint32_t kTwo = kByte | (kByte + 4) << 4, kAll = 0x5410;
    return {chooseBytes(chooseBytes(word[0], word[2], kTwo), chooseBytes(word[4], word[6], kTwo), kAll),
            chooseBytes(chooseBytes(word[1], word[3], kTwo), chooseBytes(word[5], word[7], kTwo), kAll)};
  }
  // Bytes below 16 as half bytes of one word.
  MOE_LANES std::uint32_t halves() const { return even | odd << 4; }
  // The top bits, as those of half bytes.
  MOE_LANES std::uint32_t topBits() const { return (even >> 4 & 0x08080808u) | (odd & 0x80808080u); }
};

// The codes of eight magnitudes that are not NaNs, from the low half of the low byte upwards. A GPU packs codes with
// fewer instructions if it has eight of them.
template <class MagnitudeAt>
MOE_LANES std::uint32_t eightE2m1(MagnitudeAt at) {
  std::uint32_t sum[8];
  MOE_UNROLLED
  for (int i = 0; i < 8; ++i) sum[i] = E2m1::sumWithCode(smallerNumber(at(i), E2m1::kMax));
  return BytesOfEight::of<0>(sum).halves();
}

// The signs of four codes, each in the top bit of its half byte.
MOE_LANES std::uint32_t signsE2m1(const FourFloats& from) {
  const std::uint32_t signs = (from.signs >> 4 & 0x00080008u) | (from.signs >> 8 & 0x00800080u);
  return (signs | signs >> 8) & 0xffffu;
}
// The codes of the elements times `inverse`, from the low half of the low byte upwards.
MOE_LANES std::uint32_t quantiseFourE2m1(const FourFloats& from, float inverse) {
  std::uint32_t codes = signsE2m1(from);
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t bits = floatToBits(multiplyRounded(from.value[i], inverse)) & kMagnitudeBits;
    codes |= E2m1::fromMagnitude(bitsToFloat(bits)) << 4 * i;
  }
  return codes;
}
MOE_LANES std::uint32_t quantiseEightE2m1(const FourFloats& low, const FourFloats& high, float inverse) {
#if defined(__CUDACC__)
  const std::uint32_t magnitudes = eightE2m1([&](int i) {
    const float product = multiplyRounded(i < 4 ? low.value[i] : high.value[i - 4], inverse);
    return largerNumber(0.0f, magnitudeOf(product));  // 0 for a NaN
  });
  return magnitudes | signsE2m1(low) | signsE2m1(high) << 16;
#else
  return quantiseFourE2m1(low, inverse) | quantiseFourE2m1(high, inverse) << 16;
#endif
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
  const std::uint32_t byte = fp8::codeOf(wanted);
  if (byte == 0) return kNone;
  if (byte == E4m3::kNan) return kNan;
  return {byte, divideRounded(global, fp8::toFloat(byte))};
}

}  // namespace moe
