// Quantisation of rows to 8-bit floats: OCP fp8 e4m3 with one scale for 128 elements, with the same bits on every
// machine. These are functions of one lane. A warp that shares a block takes the largest amaxOf of its lanes before it
// asks for the scale.
//
//   value ~ code * scale      code = e4m3 nearest to value * inverse, where inverse is about 1 / scale
//
// The rule for amax, the block's largest magnitude, is DeepEP's: it is at least 1e-4. Receivers know the rule from
// DeepEP's rows, a block of zeros gets an ordinary scale, and nothing here is subnormal except elements that become 0.
// The disadvantage is that blocks whose elements are all far below 1e-4 lose digits, and become zeros from 2e-10 down.
// For gradients there is an exact rule, whose lower bound is 5.3e-36. These rules differ from DeepEP's:
//   - A NaN does not count towards amax and becomes a NaN. The rest of its block is not affected.
//   - An infinity counts as the largest finite float and becomes 448, so its block decodes to 3.4e38 and zeros (DeepEP:
//     to NaNs). No scale is infinite, zero or NaN.
//   - scale = amax / 448 is rounded once; DeepEP multiplies by the rounded 1/448, which may differ in the last bit.
#pragma once

#include "device/rows/quotients.h"

#if defined(__CUDACC__)
// The GPU's own conversion to e4m3, on GPUs that have one.
namespace moe::cuda_fp8 {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890

inline constexpr bool kConverts = true;

// The values of two codes as two fp16 numbers, that of the low byte in the low half. All values are exact.
MOE_LANES std::uint32_t halvesOf(std::uint16_t codes) {
  std::uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(codes));
  return halves;
}
// Two codes: the code of `low` is in the low byte. It rounds to nearest even and saturates at 448. The sign of a NaN's
// code is undefined.
MOE_LANES std::uint32_t codesOf(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
  return codes;
}

#else

inline constexpr bool kConverts = false;
MOE_LANES std::uint32_t halvesOf(std::uint16_t) {
  return 0;
}
MOE_LANES std::uint32_t codesOf(float, float) {
  return 0;
}

#endif

}  // namespace moe::cuda_fp8
#endif

namespace moe {

// The format has a sign, 4 bits of exponent biased by 7, and 3 of mantissa. It has no infinity; 0x7f and 0xff are NaNs.
struct E4m3 {
  static constexpr float kMax = 448.0f;
  static constexpr int kMaxExponent = 8;  // 448 is 1.75 * 2^8
  static constexpr std::uint32_t kMaxFraction = 0x600000u;
  static constexpr std::uint32_t kNan = 0x7fu;

  static MOE_LANES float toFloat(std::uint32_t code) {
    const std::uint32_t sign = (code & 0x80u) << 24, magnitude = code & 0x7fu;
    if (magnitude == 0x7fu) return bitsToFloat(sign | 0x7fc00000u);
    // As in Fp16::toFloat: shift into place and multiply by 2^120, which is exact for subnormal codes too.
    return bitsToFloat(sign | floatToBits(multiplyRounded(bitsToFloat(magnitude << 20), bitsToFloat(0x7b800000u))));
  }
  // Rounds to nearest even and saturates. Keeps the sign of a NaN.
  static MOE_LANES std::uint32_t fromFloat(float value) {
    const std::uint32_t bits = floatToBits(value), sign = bits >> 24 & 0x80u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7fu;                      // NaN
    if (magnitude >= 0x43e00000u) return sign | 0x7eu;                     // 448 and more
    if (magnitude < 0x3c800000u) {                                         // subnormal: the addition rounds
      const float shifted = addRounded(bitsToFloat(magnitude), 16384.0f);  // its last place is 2^-9, like
                                                                           // that of a code
      return sign | (floatToBits(shifted) - 0x46800000u);
    }
    return sign | (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
  }
};

namespace fp8 {

// The codes of value[i] * inverse, each in byte i. Signs are set separately, because a product that is NaN has lost its
// sign.
MOE_LANES std::uint32_t quantiseFour(const FourFloats& from, float inverse) {
  float product[4];
  for (int i = 0; i < 4; ++i) product[i] = multiplyRounded(from.value[i], inverse);
#if defined(__CUDACC__)
  if constexpr (cuda_fp8::kConverts) {
    const std::uint32_t low = cuda_fp8::codesOf(product[0], product[1]),
                        high = cuda_fp8::codesOf(product[2], product[3]);
    return ((low | high << 16) & 0x7f7f7f7fu) | from.signs;
  }
#endif
  std::uint32_t codes = 0;
  for (int i = 0; i < 4; ++i) codes |= E4m3::fromFloat(product[i]) << 8 * i;
  return (codes & 0x7f7f7f7fu) | from.signs;
}

// The codes of value[i], each in byte i. NaNs get no sign, so that nobody has to look at the sign of each element. On a
// GPU every NaN that arithmetic makes is positive, and values are sums.
MOE_LANES std::uint32_t codesOfFourNumbers(const float* value) {
#if defined(__CUDACC__)
  if constexpr (cuda_fp8::kConverts) {
    return cuda_fp8::codesOf(value[0], value[1]) | cuda_fp8::codesOf(value[2], value[3]) << 16;
  }
#endif
  std::uint32_t codes = 0;
  for (int i = 0; i < 4; ++i) codes |= E4m3::fromFloat(value[i]) << 8 * i;
  const std::uint32_t nans = (codes & 0x7f7f7f7fu) + 0x01010101u;  // in the top bits of bytes
  return codes & ~(nans & 0x80808080u);
}
// The same for value[i] * inverse. The factor is positive.
MOE_LANES std::uint32_t quantiseFourNumbers(const float* value, float inverse) {
  const float scaled[4] = {multiplyRounded(value[0], inverse), multiplyRounded(value[1], inverse),
                           multiplyRounded(value[2], inverse), multiplyRounded(value[3], inverse)};
  return codesOfFourNumbers(scaled);
}

// The code of a number without its sign, and the value of a code that has no sign.
MOE_LANES std::uint32_t codeOf(float number) {
#if defined(__CUDACC__)
  if constexpr (cuda_fp8::kConverts) return cuda_fp8::codesOf(number, 0.0f) & 0x7fu;
#endif
  return E4m3::fromFloat(number) & 0x7fu;
}
MOE_LANES float toFloat(std::uint32_t code) {
#if defined(__CUDACC__)
  if constexpr (cuda_fp8::kConverts)
    return Fp16::toFloat(cuda_fp8::halvesOf(static_cast<std::uint16_t>(code)) & 0xffffu);
#endif
  return E4m3::toFloat(code);
}

// The values of four codes.
struct Four {
  float value[4];
};
MOE_LANES Four toFloats(std::uint32_t codes) {
#if defined(__CUDACC__)
  if constexpr (cuda_fp8::kConverts) {
    const std::uint32_t low = cuda_fp8::halvesOf(static_cast<std::uint16_t>(codes)),
                        high = cuda_fp8::halvesOf(static_cast<std::uint16_t>(codes >> 16));
    return {{Fp16::toFloat(low & 0xffffu), Fp16::toFloat(low >> 16), Fp16::toFloat(high & 0xffffu),
             Fp16::toFloat(high >> 16)}};
  }
#endif
  return {{E4m3::toFloat(codes & 0xffu), E4m3::toFloat(codes >> 8 & 0xffu), E4m3::toFloat(codes >> 16 & 0xffu),
           E4m3::toFloat(codes >> 24)}};
}

}  // namespace fp8

// The factor by which the receiver multiplies the codes, and the factor for a block's elements.
struct Fp8Scale {
  float scale;
  float inverse;
};

// The smallest amax of the rule above and of the exact rule for gradients. Below the latter, a scale would not be a
// normal float.
inline constexpr float kFp8AmaxLeast = 1e-4f, kFp8AmaxExact = 0x1.cp-118f;

// The clamp of the rule above. A NaN becomes the smallest value.
MOE_LANES float clampAmax(float amax, float least) {
  constexpr float kMost = 0x1.fffffep127f;
  return amax > least ? (amax < kMost ? amax : kMost) : least;
}

// The scale as a float.
MOE_LANES Fp8Scale fp8Scale(float amax, float least = kFp8AmaxLeast) {
  constexpr float kDown = 0x1p-8f;  // so that the reciprocal of the largest amax is a normal number
  const float clamped = clampAmax(amax, least);
  return {overConstant(clamped, E4m3::kMax), normalQuotient(E4m3::kMax * kDown, multiplyRounded(clamped, kDown))};
}

// The scale as a power of two: one byte, its exponent biased by 127; 255 is NaN (OCP UE8M0).
struct Ue8m0 {
  // ceil(log2(amax / 448)), exactly. 448 is 1.75 * 2^8, so a mantissa above 1.75 adds one. After the clamp of amax the
  // byte is in 1..247, so 2^exponent and 2^-exponent are normal floats.
  static MOE_LANES std::uint32_t scaleOf(float amax, float least = kFp8AmaxLeast) {
    const std::uint32_t bits = floatToBits(clampAmax(amax, least));
    return (bits >> 23) - 8 + ((bits & 0x7fffffu) > 0x600000u ? 1u : 0u);
  }
  static MOE_LANES float toFloat(std::uint32_t byte) {
    return bitsToFloat(byte == 0 ? 0x00400000u : byte == 255 ? 0x7fc00000u : byte << 23);
  }
};

MOE_LANES Fp8Scale ue8m0Scale(float amax, float least = kFp8AmaxLeast) {
  const std::uint32_t byte = Ue8m0::scaleOf(amax, least);
  return {bitsToFloat(byte << 23), bitsToFloat((254 - byte) << 23)};
}

// The codes of a piece: element i in byte i, counted from the low byte of word[0].
template <class Type>
struct Fp8Codes {
  std::uint32_t word[Type::kPerWord];
};

template <class Type>
MOE_LANES Fp8Codes<Type> quantise(Quad piece, float inverse) {
  if constexpr (Type::kPerWord == 2) {
    return {{fp8::quantiseFour(fourOf<Type>(piece.x, piece.y), inverse),
             fp8::quantiseFour(fourOf<Type>(piece.z, piece.w), inverse)}};
  } else {
    return {{fp8::quantiseFour(fourOf(piece), inverse)}};
  }
}

MOE_LANES float dequantise(std::uint32_t code, float scale) {
  return multiplyRounded(E4m3::toFloat(code), scale);
}

}  // namespace moe
