// The formats in which rows of a combine may travel: the layout of a row on the wire, how its elements are coded, and
// how they are read. These are functions of one lane, with the same bits on every machine. Lanes divide a row into
// pieces of 16 elements, and cooperate in blocks that share a scale.
//
// A row is one piece of memory. Its codes come first. In formats with scales, a word for each block of 128 elements
// follows; in NVFP4, these are two words with the scales of 8 blocks of 16. The scales are padded to 16 bytes. In
// NVFP4, the row's float follows, four times. The codes of LogFMT-10 are 16 bytes for each piece, then four more bytes
// for each.
//
//   fp8         element ~ code                    code = e4m3, saturating at 448
//   fp8 blocks  element ~ code * scale            as the exact cast: amax / 448, at least 2^-126 (fp8.h)
//   NVFP4       element ~ code * (scale * float)  float = amax of the row / (6 * 448); scales as those of the cast with
//                                                 the global scale 6 * 448 / amax of the row (block_scales.h)
//   LogFMT-10   |element| ~ amax * 2^((code - 511) * step)    of a block of 128 (logfmt.h)
//
// A NaN stays a NaN; in NVFP4 its block of 16 becomes NaN too, and in LogFMT-10 its block of 128. An infinity counts as
// the largest finite float (in LogFMT-10 the largest finite bf16) and becomes the largest code.
//
// No word of a row is all ones, because landing words cannot carry that value (queue/landing.h). Therefore NaNs are
// coded without a sign, in which machines differ anyway. Codes of E2M1 and LogFMT-10 have inverted magnitude bits and
// no negative zero.
#pragma once

#include "device/rows/block_scales.h"
#include "device/rows/fp8.h"
#include "device/rows/logfmt.h"

namespace moe {

// Values of moeWire. kWireRow: rows are not coded.
enum WireType : int { kWireRow, kWireFp8, kWireFp8Blocks, kWireNvfp4, kWireLogfmt10 };

inline constexpr int kWirePiece = 16;   // elements that a lane codes at once
inline constexpr int kWireUnit = 128;   // elements of a unit; rows are divided into whole units
inline constexpr int kWireFactors = 4;  // copies of an NVFP4 row's float, which is also
                                        // the most parts that a row may have
inline constexpr int kWireUnitPieces = kWireUnit / kWirePiece;

// The size of a row, and where its elements lie, in bytes from its beginning.
struct WireRow {
  int type, elements;

  MOE_HOST_DEVICE constexpr bool packsTwo() const { return type == kWireNvfp4; }
  MOE_HOST_DEVICE constexpr bool hasFactor() const { return type == kWireNvfp4; }
  MOE_HOST_DEVICE constexpr bool isLog() const { return type == kWireLogfmt10; }
  // Words of scales per unit.
  MOE_HOST_DEVICE constexpr int scaleWords() const {
    return type == kWireNvfp4 ? 2 : type == kWireFp8Blocks || isLog() ? 1 : 0;
  }
  MOE_HOST_DEVICE constexpr int codesAt(int element) const { return packsTwo() ? element / 2 : element; }
  // Where the fifth words of LogFMT-10's pieces lie.
  MOE_HOST_DEVICE constexpr int fifthAt(int element) const { return elements + element / kWirePiece * 4; }
  MOE_HOST_DEVICE constexpr int codeBytes() const { return isLog() ? fifthAt(elements) : codesAt(elements); }
  // Where the word with the scale of a piece lies.
  MOE_HOST_DEVICE constexpr int scaleAt(int element) const {
    const int unit = element / kWireUnit, half = element / (kWireUnit / 2) % 2;
    return codeBytes() + 4 * (packsTwo() ? 2 * unit + half : unit);
  }
  MOE_HOST_DEVICE constexpr int factorAt() const {
    const int scales = elements / kWireUnit * scaleWords() * 4;
    return codeBytes() + static_cast<int>(roundUp(scales, sizeof(Quad)));
  }
  MOE_HOST_DEVICE constexpr std::uint32_t bytes() const {
    return static_cast<std::uint32_t>(factorAt() + (hasFactor() ? int{sizeof(float)} * kWireFactors : 0));
  }
};

// The elements [begin, end) of a row, which are part `index` of `count`.
struct WirePart {
  int begin, end, index, count;

  // Whether this part takes copy `copy` of the row's float. Each copy belongs to one part.
  MOE_LANES bool takesFactor(int copy) const { return (copy < count ? copy : count - 1) == index; }
};

// ---- Coding

// A piece of a sum, and the functions that code it.
struct WirePiece {
  float value[kWirePiece];

  // From 16 sums.
  static MOE_LANES WirePiece of(const float* sums) {
    WirePiece piece;
    for (int i = 0; i < kWirePiece; ++i) piece.value[i] = sums[i];
    return piece;
  }
  // The bits of the largest magnitude, ignoring NaNs.
  MOE_LANES std::uint32_t amax() const {
    float largest = 0.0f, other = 0.0f;  // two, so that half of the comparisons wait for each other
    for (int i = 0; i < kWirePiece; i += 2) {
      largest = largerNumber(largest, magnitudeOf(value[i]));
      other = largerNumber(other, magnitudeOf(value[i + 1]));
    }
    return floatToBits(largerNumber(largest, other));
  }
  // The bits of the largest magnitude, or of a NaN if there is one.
  MOE_LANES std::uint32_t amaxOrNan() const {
    std::uint32_t largest = 0;
    for (const float element : value) {
      const std::uint32_t bits = floatToBits(magnitudeOf(element));
      largest = bits > largest ? bits : largest;
    }
    return largest;
  }
  MOE_LANES std::uint32_t amin() const {
    std::uint32_t least = kMagnitudeBits;
    for (const float element : value) {
      const std::uint32_t bits = floatToBits(magnitudeOf(element));
      least = bits < least ? bits : least;
    }
    return least;
  }
  MOE_LANES Quad codes() const {
    return {fp8::codesOfFourNumbers(value), fp8::codesOfFourNumbers(value + 4), fp8::codesOfFourNumbers(value + 8),
            fp8::codesOfFourNumbers(value + 12)};
  }
  MOE_LANES Quad codes(float inverse) const {
    return {fp8::quantiseFourNumbers(value, inverse), fp8::quantiseFourNumbers(value + 4, inverse),
            fp8::quantiseFourNumbers(value + 8, inverse), fp8::quantiseFourNumbers(value + 12, inverse)};
  }
  // Only with a factor of 0, products may be NaNs.
  MOE_LANES HalfQuad codesE2m1(float inverse) const {
    return {eightE2m1(value, inverse), eightE2m1(value + 8, inverse)};
  }
  // The value of element i after this coding, without its scale.
  MOE_LANES float valueE2m1(int i, float inverse) const {
    const float product = magnitudeOf(multiplyRounded(value[i], inverse));
    const float rounded = E2m1::rounded(smallerNumber(product, E2m1::kMax));
    return bitsToFloat(floatToBits(rounded) | (floatToBits(value[i]) & ~kMagnitudeBits));
  }
  MOE_LANES LogPiece codesLog(const LogCoder& coder) const {
    return LogPiece::of([&](int i) { return coder.fieldOf(value[i]); });
  }

 private:
  static MOE_LANES std::uint32_t eightE2m1(const float* from, float inverse) {
#if defined(__CUDACC__)
    std::uint32_t words[8];
    MOE_UNROLLED
    for (int i = 0; i < 8; ++i) words[i] = floatToBits(from[i]);
    const std::uint32_t codes = moe::eightE2m1([&](int i) { return magnitudeOf(multiplyRounded(from[i], inverse)); });
    return wireNibbles(inverse == 0.0f ? 0 : codes | BytesOfEight::of<3>(words).topBits());
#else
    return wireNibbles(quantiseEightE2m1(fourOf(from), fourOf(from + 4), inverse));
#endif
  }
  // Eight E2M1 codes in the form that travels. A NaN, whose code is 0, loses its sign here.
  static MOE_LANES std::uint32_t wireNibbles(std::uint32_t codes) {
    const std::uint32_t some = (codes | codes >> 1 | codes >> 2) & 0x11111111u;
    return (codes & (0x77777777u | some << 3)) ^ 0x77777777u;
  }
};

// The scale of a block of fp8. `amax` has the bits of a float.
MOE_LANES Fp8Scale wireFp8Scale(std::uint32_t amax) {
  return fp8Scale(bitsToFloat(amax), kFp8AmaxExact);
}

// The float of an NVFP4 row, and the global scale of its blocks. Both are normal numbers, even for a row of zeros, and
// so is the global scale over the smallest scale of a block, 2^-9: an infinite factor would make NaNs of zeros.
struct WireFactor {
  float factor, global;

  static MOE_LANES WireFactor of(std::uint32_t amax) {
    constexpr float kMax = E2m1::kMax * E4m3::kMax, kLeast = 0x1.5p-107f;  // 6 * 448 * 2^-118
    constexpr float kDown = 0x1p-9f;  // so that the reciprocal of the largest amax is a normal number
    const float clamped = clampAmax(bitsToFloat(amax), kLeast);
    return {overConstant(clamped, kMax), normalQuotient(kMax * kDown, multiplyRounded(clamped, kDown))};
  }
};

// nvfp4Scale() of a block of a row. `amax` has the bits of its largest magnitude, or of a NaN.
MOE_LANES ByteScale wireNvfp4Scale(std::uint32_t amax, const WireFactor& factor) {
  if (amax > kInfinityBits) return {E4m3::kNan, 0.0f};
  const float clamped = clampAmax(bitsToFloat(amax), 0.0f);
  // At most 2688. A quotient that is not a normal number rounds to a scale of 0.
  const std::uint32_t byte = fp8::codeOf(overConstant(multiplyRounded(factor.global, clamped), E2m1::kMax));
  return {byte, byte == 0 ? 0.0f : normalQuotient(factor.global, fp8::toFloat(byte))};
}

// ---- Reading

// The factor by which the codes of a piece are multiplied.
MOE_LANES float wireScale(const WireRow& wire, int element, std::uint32_t scaleWord, std::uint32_t factor) {
  if (wire.type == kWireFp8Blocks) return bitsToFloat(scaleWord);
  if (wire.type != kWireNvfp4) return 1.0f;
  const std::uint32_t byte = scaleWord >> element / kWirePiece % 4 * 8 & 0xffu;
  return multiplyRounded(fp8::toFloat(byte), bitsToFloat(factor));
}
// The E2M1 codes of a word, without their scale.
MOE_LANES E2m1Floats wireE2m1Floats(std::uint32_t word) {
  return E2m1Floats::of(word ^ 0x77777777u);
}
// Element i of eight E2M1 codes.
MOE_LANES float wireE2m1(std::uint32_t word, int i, float scale) {
  return multiplyRounded(E2m1::toFloat((word >> 4 * i & 0xfu) ^ 7u), scale);
}

}  // namespace moe
