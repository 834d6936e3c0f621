// LogFMT-10: ten bits per element, which are a sign and the logarithm of the magnitude in steps that 128 elements
// share. It uses plain fp32 and integer arithmetic, so the bits are the same on every machine. These are functions of
// one lane.
//
// A group has amax and amin, the largest and the smallest magnitude, as bf16. Let la = log2(amax) and span = la -
// log2(amin), at least 1 and at most 32. Then codes 1 to 511 stand for the magnitudes 2^(la - (511 - code) * step),
// where step = span / 510. Code 0 is zero. A magnitude gets the code of the nearest value, so rounding is linear.
//
// All logarithms are relative to amax's power of two, so that no digits are spent on the size of a group. log2 and exp2
// are polynomials through the Chebyshev points. log2(1 + m) = m + m * (1 - m) * q(m) is exact where octaves meet, with
// q of degree 5. 2^f has degree 5 on [-1/2, 1/2]. Rounded as here, the error of log2 is at most 1.3e-6, and the
// relative error of 2^f at most 3.3e-7. A code is off only where log2 of the magnitude is within 4e-6 of a boundary. A
// value is off by at most 5e-6 of itself. tests/unit/device_logfmt_test.cc measures all four.
#pragma once

#include "device/rows/elements.h"

namespace moe {

inline constexpr int kLogElements = 16;  // elements that share words
inline constexpr int kLogWords = 5;
inline constexpr std::uint32_t kLogTop = 511;  // the largest code

namespace logfmt {

// Adding this to a number below 2^22 leaves the nearest integer in the low bits.
inline constexpr float kRounder = 0x1.8p23f;

// log2(1 + m), where m is the fraction of the float with these bits.
MOE_LANES float logOfFraction(std::uint32_t bits) {
  const float m = addRounded(bitsToFloat((bits & 0x7fffffu) | 0x3f800000u), -1.0f);
  float q = addRounded(multiplyRounded(-0x1.efa172p-7f, m), 0x1.067158p-4f);
  q = addRounded(multiplyRounded(q, m), -0x1.0d33d8p-3f);
  q = addRounded(multiplyRounded(q, m), 0x1.92c300p-3f);
  q = addRounded(multiplyRounded(q, m), -0x1.1ce0e6p-2f);
  q = addRounded(multiplyRounded(q, m), 0x1.c5503ap-2f);
  return addRounded(multiplyRounded(multiplyRounded(m, addRounded(1.0f, -m)), q), m);
}

// 2^f for f in [-1/2, 1/2].
MOE_LANES float powerOfTwo(float f) {
  float r = addRounded(multiplyRounded(0x1.5ec866p-10f, f), 0x1.3cbf60p-7f);
  r = addRounded(multiplyRounded(r, f), 0x1.c6afeep-5f);
  r = addRounded(multiplyRounded(r, f), 0x1.ebfa4cp-3f);
  r = addRounded(multiplyRounded(r, f), 0x1.62e430p-1f);
  return addRounded(multiplyRounded(r, f), 1.0f);
}

// An integer below 2^23 as a float, plus 2^23.
MOE_LANES float raised(std::uint32_t integer) {
  return bitsToFloat(0x4b000000u | integer);
}

}  // namespace logfmt

// The word of a group that travels beside its codes: amax in the low half, amin in the high half. amax is rounded up
// and amin down, so that no magnitude is outside of them. Both arguments are the bits of magnitudes; `amax` may be a
// NaN.
MOE_LANES std::uint32_t logWord(std::uint32_t amax, std::uint32_t amin) {
  constexpr std::uint32_t kNan = 0x7fffu, kLargest = 0x7f7fu;
  if (amax > kInfinityBits) return kNan;
  const std::uint32_t up = (amax + 0xffffu) >> 16;
  return (up < kLargest ? up : kLargest) | (amin & 0xffff0000u);
}

// A group, decoded from its word.
struct LogGroup {
  std::uint32_t exponent;  // biased exponent of amax
  float fraction;          // log2 of amax without the exponent
  float span, step;
  float nothing;  // the value of code 0: 0, or NaN if the group had a NaN

  static MOE_LANES LogGroup of(std::uint32_t word) {
    constexpr std::uint32_t kLeast = 0x11000000u;  // 2^-93: below that, the smallest values would not be normal
    const std::uint32_t amax = word << 16, amin = word & 0xffff0000u, top = amax > kLeast ? amax : kLeast;
    LogGroup group;
    group.exponent = top >> 23;
    group.fraction = logfmt::logOfFraction(top);
    const float octaves = addRounded(logfmt::raised(top >> 23), -logfmt::raised(amin >> 23));
    const float span = addRounded(octaves, addRounded(group.fraction, -logfmt::logOfFraction(amin)));
    group.span = smallerNumber(largerNumber(1.0f, span), 32.0f);  // an amin of 0 gives a large enough
                                                                  // span before the clamp
    group.step = multiplyRounded(group.span, 1.0f / 510);
    group.nothing = amax > kInfinityBits ? bitsToFloat(0x7fc00000u) : 0.0f;
    return group;
  }
  MOE_LANES bool isNan() const { return floatToBits(nothing) != 0; }

  // A field has ten bits: the sign, then the inverted code. Zeros have no sign, so a field is never all ones.
  MOE_LANES float valueOf(std::uint32_t field) const {
    const std::uint32_t below = field & kLogTop;  // steps below amax
    const float log = addRounded(fraction, -multiplyRounded(step, addRounded(logfmt::raised(below), -0x1p23f)));
    const float octave = addRounded(log, logfmt::kRounder);
    const float power = logfmt::powerOfTwo(addRounded(log, -addRounded(octave, -logfmt::kRounder)));
    const std::uint32_t octaves = floatToBits(octave) - floatToBits(logfmt::kRounder) + exponent - 127;
    const std::uint32_t magnitude = floatToBits(power) + (octaves << 23);
    return below == kLogTop ? nothing : bitsToFloat(magnitude | (field & 0x200u) << 22);
  }
};

// Codes the elements of a group as fields.
struct LogCoder {
  float exponent, fraction;  // parts of amax; the exponent is raised()
  float stepsPerOctave, top;

  static MOE_LANES LogCoder of(const LogGroup& group) {
    const float raised = logfmt::raised(group.exponent);
    if (group.isNan()) return {raised, group.fraction, 0.0f, -1.0f};  // all elements get code 0
    // The boundary between two neighbouring values is nearer the larger one by ln(2) / 8 * step, in steps. The further
    // terms of log2((1 + 2^step) / 2) / step are below 1e-6.
    const float middle = multiplyRounded(group.step, -0x1.62e430p-4f);
    return {raised, group.fraction, divideRounded(510.0f, group.span), addRounded(middle, 511.0f)};
  }
  MOE_LANES std::uint32_t fieldOf(float element) const {
    const std::uint32_t bits = floatToBits(element), magnitude = bits & kMagnitudeBits;
    const float octaves = addRounded(logfmt::raised(magnitude >> 23), -exponent);
    const float log = addRounded(octaves, addRounded(logfmt::logOfFraction(magnitude), -fraction));
    const float place = addRounded(multiplyRounded(log, stepsPerOctave), top);
    const float clamped = smallerNumber(largerNumber(0.0f, place), 511.0f);
    const std::uint32_t code = floatToBits(addRounded(clamped, logfmt::kRounder)) & kLogTop;
    return (code ^ kLogTop) | (code != 0 ? bits >> 31 << 9 : 0u);
  }
};

// Sixteen fields. Each word has three in its low bits and two bits of the last field above them. Therefore no word is
// all ones.
struct LogPiece {
  std::uint32_t word[kLogWords];

  // `fieldAt(i)`: the field of element i.
  template <class FieldAt>
  static MOE_LANES LogPiece of(FieldAt fieldAt) {
    LogPiece piece;
    const std::uint32_t last = fieldAt(kLogElements - 1);
    MOE_UNROLLED
    for (int i = 0; i < kLogWords; ++i) {
      piece.word[i] = fieldAt(3 * i) | fieldAt(3 * i + 1) << 10 | fieldAt(3 * i + 2) << 20 | (last >> 2 * i & 3u) << 30;
    }
    return piece;
  }
  MOE_LANES std::uint32_t fieldAt(int i) const {
    if (i < kLogElements - 1) return word[i / 3] >> 10 * (i % 3) & 0x3ffu;
    std::uint32_t last = 0;
    MOE_UNROLLED
    for (int w = 0; w < kLogWords; ++w) last |= word[w] >> 30 << 2 * w;
    return last;
  }
};

}  // namespace moe
