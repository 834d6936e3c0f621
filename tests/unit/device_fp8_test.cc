// Compares with a reference that searches all codes for the nearest.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <limits>
#include <vector>

#include "device/rows/fp8.h"
#include "support/reference/fp8_reference.h"

namespace moe::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

template <class Type>
Quad quadOf(const std::array<std::uint32_t, 4 * Type::kPerWord>& elements) {
  std::uint32_t words[4];
  for (std::size_t i = 0; i < 4; ++i) {
    if constexpr (Type::kPerWord == 2)
      words[i] = elements[2 * i] | elements[2 * i + 1] << 16;
    else
      words[i] = elements[i];
  }
  return {words[0], words[1], words[2], words[3]};
}

template <class Type>
std::uint32_t codeAt(const Fp8Codes<Type>& codes, std::size_t i) {
  return codes.word[i / 4] >> 8 * (i % 4) & 0xffu;
}

Quad floats(float a, float b = 0, float c = 0, float d = 0) {
  return {floatToBits(a), floatToBits(b), floatToBits(c), floatToBits(d)};
}

TEST(Fp8, EveryCodeMeansWhatItsFieldsSay) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    const float value = E4m3::toFloat(code);
    if ((code & 0x7fu) == 0x7fu) {
      ASSERT_TRUE(std::isnan(value)) << code;
    } else {
      ASSERT_EQ(value, valueOfCode(code)) << code;
    }
    ASSERT_EQ(std::signbit(value), code >= 0x80u) << code;
  }
  EXPECT_EQ(E4m3::toFloat(0x7e), 448.0f);
  EXPECT_EQ(E4m3::toFloat(0x08), 0.015625f);
  EXPECT_EQ(E4m3::toFloat(0x01), 0.001953125f);
}

TEST(Fp8, EveryCodeComesBackFromItsFloat) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    ASSERT_EQ(E4m3::fromFloat(E4m3::toFloat(code)), code);
    const Quad piece = floats(E4m3::toFloat(code), 0, 0, E4m3::toFloat(code));
    ASSERT_EQ(quantise<Fp32>(piece, 1.0f).word[0], code | code << 24);
  }
}

TEST(Fp8, RoundsToTheNearerCodeAndATieToTheEvenOne) {
  for (std::uint32_t code = 0; code < 0x7eu; ++code) {
    const float low = E4m3::toFloat(code), high = E4m3::toFloat(code + 1), middle = low + (high - low) / 2;
    ASSERT_EQ(E4m3::fromFloat(std::nextafter(middle, low)), code);
    ASSERT_EQ(E4m3::fromFloat(std::nextafter(middle, high)), code + 1);
    ASSERT_EQ(E4m3::fromFloat(middle), code % 2 == 0 ? code : code + 1);
    ASSERT_EQ(E4m3::fromFloat(-middle), (code % 2 == 0 ? code : code + 1) | 0x80u);
  }
}

TEST(Fp8, SaturatesAndKeepsTheSignOfWhatIsNoNumber) {
  for (const float value : {448.0f, 449.0f, 464.0f, 480.0f, 1e30f, FLT_MAX, kInfinity}) {
    EXPECT_EQ(E4m3::fromFloat(value), 0x7eu);
    EXPECT_EQ(E4m3::fromFloat(-value), 0xfeu);
    EXPECT_EQ(quantise<Fp32>(floats(value, -value), 1.0f).word[0], 0xfe7eu);
  }
  EXPECT_EQ(E4m3::fromFloat(std::copysign(kNan, 1.0f)), 0x7fu);
  EXPECT_EQ(E4m3::fromFloat(std::copysign(kNan, -1.0f)), 0xffu);
  EXPECT_EQ(quantise<Fp32>({0xffc00000u, 0x7f800001u, 0xff800001u, 0x7fffffffu}, 0.5f).word[0], 0x7fff7fffu);
  EXPECT_EQ(quantise<Bf16>({0xff817f81u, 0, 0, 0x7fffffffu}, 0.5f).word[0], 0xff7fu);
  EXPECT_EQ(quantise<Bf16>({0xff817f81u, 0, 0, 0x7fffffffu}, 0.5f).word[1], 0x7fff0000u);
  EXPECT_EQ(quantise<Fp16>({0xfc017c01u, 0, 0x7fffffffu, 0}, 0.5f).word[0], 0xff7fu);
  EXPECT_EQ(quantise<Fp16>({0xfc017c01u, 0, 0x7fffffffu, 0}, 0.5f).word[1], 0x7fffu);
}

// A zero has a sign, and an element that is too small keeps its own.
TEST(Fp8, SubnormalInputsBecomeZerosOfTheirSign) {
  EXPECT_EQ(quantise<Fp32>({0x80000000u, 0x80000001u, 0x00000001u, 0x807fffffu}, 4.48e6f).word[0], 0x80008080u);
  EXPECT_EQ(quantise<Bf16>({0x80018000u, 0x00010000u, 0, 0}, 4.48e6f).word[0], 0x00008080u);
  // The smallest fp16 is 2^-24, and an inverse of 2^15 makes it the smallest code.
  EXPECT_EQ(quantise<Fp16>({0x80010001u, 0, 0, 0}, 32768.0f).word[0], 0x8101u);
  EXPECT_EQ(quantise<Fp16>({0x80010001u, 0, 0, 0}, 16384.0f).word[0], 0x8000u);  // a tie
}

// All values of a 16-bit type at every place of a piece, with inverses from the smallest to the largest possible.
template <class Type>
void checkAllHalves() {
  for (const float amax : {0.0f, 1.0f, 3.3895314e38f, 448.0f, 0.7f, 17.0f}) {
    for (const float inverse : {fp8Scale(amax).inverse, ue8m0Scale(amax).inverse}) {
      for (std::uint32_t half = 0; half < 0x10000u; ++half) {
        std::array<std::uint32_t, 8> elements;
        for (std::uint32_t i = 0; i < 8; ++i) elements[i] = (half + i * 0x1357u) & 0xffffu;
        const Fp8Codes<Type> codes = quantise<Type>(quadOf<Type>(elements), inverse);
        const std::size_t at = half % 8;
        const float value = Type::toFloat(elements[at]);
        const float product = std::isnan(value) ? value : value * inverse;
        ASSERT_EQ(codeAt(codes, at), nearestCode(product)) << elements[at] << " times " << inverse;
      }
    }
  }
}

TEST(Fp8, QuantisesEveryBf16AsTheReferenceDoes) {
  checkAllHalves<Bf16>();
}

TEST(Fp8, QuantisesEveryFp16AsTheReferenceDoes) {
  checkAllHalves<Fp16>();
}

// Every sign, exponent and first seven mantissa bits, with remainders that decide ties. A code keeps three of the bits.
TEST(Fp8, QuantisesFloatsAsTheReferenceDoes) {
  for (std::uint32_t half = 0; half < 0x10000u; ++half) {
    const Quad piece{half << 16, half << 16 | 1u, half << 16 | 0x8000u, half << 16 | 0xffffu};
    const Fp8Codes<Fp32> codes = quantise<Fp32>(piece, 1.0f);
    const std::uint32_t words[4] = {piece.x, piece.y, piece.z, piece.w};
    for (std::size_t i = 0; i < 4; ++i) ASSERT_EQ(codeAt(codes, i), nearestCode(bitsToFloat(words[i]))) << words[i];
  }
}

TEST(Fp8, AmaxIsTheLargestMagnitudeWhereverItStands) {
  for (std::size_t at = 0; at < 8; ++at) {
    std::array<std::uint32_t, 8> bf16{}, fp16{};
    bf16.fill(Bf16::fromFloat(-1.5f)), fp16.fill(Fp16::fromFloat(1.5f));
    bf16[at] = Bf16::fromFloat(-3e38f);
    fp16[at] = Fp16::fromFloat(-60000.0f);
    EXPECT_EQ(amaxOf<Bf16>(quadOf<Bf16>(bf16)), Bf16::toFloat(Bf16::fromFloat(3e38f)));
    EXPECT_EQ(amaxOf<Fp16>(quadOf<Fp16>(fp16)), Fp16::toFloat(Fp16::fromFloat(60000.0f)));
  }
  EXPECT_EQ(amaxOf<Fp32>(floats(1, -2, 0, 1e-40f)), 2.0f);
  EXPECT_EQ(amaxOf<Fp32>(floats(0, 0, -3, 2)), 3.0f);
  EXPECT_EQ(amaxOf<Fp32>(floats(0, 0, 3, -4)), 4.0f);
  EXPECT_EQ(amaxOf<Fp32>(floats(-0.0f, -0.0f, -0.0f, -0.0f)), 0.0f);
}

TEST(Fp8, AmaxDoesNotCountWhatIsNoNumber) {
  EXPECT_EQ(amaxOf<Fp32>(floats(kNan, 2, -kNan, 1)), 2.0f);
  EXPECT_EQ(amaxOf<Fp32>(floats(kNan, kNan, kNan, kNan)), 0.0f);
  EXPECT_EQ(amaxOf<Bf16>({0x3f807fc0u, 0xffc0ffc0u, 0, 0}), 1.0f);
  EXPECT_EQ(amaxOf<Fp16>({0x3c007e00u, 0xfe00fe00u, 0, 0}), 1.0f);
  EXPECT_EQ(amaxOf<Fp32>(floats(1, -kInfinity)), kInfinity);
}

TEST(Fp8, ABlockOfZerosHasAnOrdinaryScale) {
  for (const Fp8Scale& scale : {fp8Scale(0.0f), ue8m0Scale(0.0f)}) {
    EXPECT_GT(scale.scale, 1e-7f);
    EXPECT_LT(scale.scale, 1e-6f);
    EXPECT_EQ(quantise<Bf16>({0, 0x80000000u, 0, 0}, scale.inverse).word[0], 0x80000000u);
    EXPECT_EQ(dequantise(0, scale.scale), 0.0f);
  }
  EXPECT_EQ(fp8Scale(0.0f).scale, 1e-4f / 448.0f);
  EXPECT_EQ(fp8Scale(1e-4f).scale, 1e-4f / 448.0f);
  EXPECT_GT(fp8Scale(2e-4f).scale, 1e-4f / 448.0f);
}

TEST(Fp8, ScaleAndInverseAreTheRoundedQuotients) {
  EXPECT_EQ(fp8Scale(448.0f).scale, 1.0f);
  EXPECT_EQ(fp8Scale(448.0f).inverse, 1.0f);
  EXPECT_EQ(fp8Scale(896.0f).inverse, 0.5f);
  for (float amax = 1.1e-4f; amax < 1e38f; amax *= 1.37f) {
    EXPECT_EQ(fp8Scale(amax).scale, static_cast<float>(static_cast<double>(amax) / 448)) << amax;
    EXPECT_EQ(fp8Scale(amax).inverse, static_cast<float>(448 / static_cast<double>(amax))) << amax;
    EXPECT_EQ(E4m3::fromFloat(multiplyRounded(amax, fp8Scale(amax).inverse)), 0x7eu) << amax;
  }
}

TEST(Fp8, NoScaleIsInfiniteZeroOrNoNumber) {
  for (const float amax : {0.0f, FLT_TRUE_MIN, FLT_MIN, FLT_MAX, kInfinity, kNan}) {
    for (const Fp8Scale& scale : {fp8Scale(amax), ue8m0Scale(amax)}) {
      EXPECT_TRUE(std::isnormal(scale.scale)) << amax;
      EXPECT_TRUE(std::isnormal(scale.inverse)) << amax;
    }
  }
  // An infinity becomes the largest of its block, and its block stays finite.
  const Fp8Scale scale = fp8Scale(amaxOf<Fp32>(floats(kInfinity, 1)));
  EXPECT_EQ(quantise<Fp32>(floats(-kInfinity, 1), scale.inverse).word[0], 0xfeu);
  EXPECT_GE(dequantise(0x7e, scale.scale), 3.4028e38f);
  EXPECT_TRUE(std::isfinite(dequantise(0x7e, scale.scale)));
}

TEST(Ue8m0, IsTheSmallestPowerOfTwoThatHoldsTheBlock) {
  for (int exponent = -13; exponent < 128; ++exponent) {
    for (const std::uint32_t mantissa : {0u, 1u, 0x400000u, 0x5fffffu, 0x600000u, 0x600001u, 0x7fffffu}) {
      const float amax = bitsToFloat(static_cast<std::uint32_t>(exponent + 127) << 23 | mantissa);
      const int power = static_cast<int>(Ue8m0::scaleOf(amax)) - 127;
      ASSERT_LE(static_cast<double>(amax), std::ldexp(448.0, power)) << amax;
      ASSERT_GT(static_cast<double>(amax), std::ldexp(448.0, power - 1)) << amax;
      ASSERT_EQ(ue8m0Scale(amax).scale, std::ldexp(1.0, power));
      ASSERT_EQ(ue8m0Scale(amax).inverse, std::ldexp(1.0, -power));
      ASSERT_EQ(E4m3::fromFloat(multiplyRounded(amax, ue8m0Scale(amax).inverse)),
                nearestCode(std::ldexp(amax, -power)));
    }
  }
}

TEST(Ue8m0, ExactPowersOfTwoTimesTheLargestCodeNeedNoMore) {
  EXPECT_EQ(Ue8m0::scaleOf(448.0f), 127u);
  EXPECT_EQ(Ue8m0::scaleOf(std::nextafter(448.0f, 1e3f)), 128u);
  EXPECT_EQ(Ue8m0::scaleOf(std::nextafter(448.0f, 0.0f)), 127u);
  EXPECT_EQ(Ue8m0::scaleOf(224.0f), 126u);
  EXPECT_EQ(Ue8m0::scaleOf(256.0f), 127u);  // 256 / 448 is above 1/2
  EXPECT_EQ(Ue8m0::scaleOf(0.0f), 105u);
  EXPECT_EQ(Ue8m0::scaleOf(FLT_MAX), 247u);
  EXPECT_EQ(Ue8m0::scaleOf(kInfinity), 247u);
}

TEST(Ue8m0, EveryByteIsItsPowerOfTwo) {
  for (std::uint32_t byte = 0; byte < 255; ++byte) {
    ASSERT_EQ(Ue8m0::toFloat(byte), std::ldexp(1.0f, static_cast<int>(byte) - 127)) << byte;
  }
  EXPECT_TRUE(std::isnan(Ue8m0::toFloat(255)));
  for (const float amax : {0.0f, 1.0f, 1e30f}) {
    EXPECT_EQ(Ue8m0::toFloat(Ue8m0::scaleOf(amax)), ue8m0Scale(amax).scale);
  }
}

// The format's promise: an error of at most half of 2^-3 relative, or half of the smallest code.
TEST(Fp8, DequantisedBlocksAreCloseToTheirElements) {
  std::vector<float> block(128);
  for (std::size_t i = 0; i < block.size(); ++i) {
    block[i] = std::ldexp(std::sin(static_cast<float>(i) * 0.71f), static_cast<int>(i % 9) - 4);
  }
  float amax = 0;
  for (std::size_t i = 0; i < block.size(); i += 4) {
    amax = largerNumber(amax, amaxOf<Fp32>(floats(block[i], block[i + 1], block[i + 2], block[i + 3])));
  }
  for (const Fp8Scale& scale : {fp8Scale(amax), ue8m0Scale(amax)}) {
    for (std::size_t i = 0; i < block.size(); i += 4) {
      const auto codes = quantise<Fp32>(floats(block[i], block[i + 1], block[i + 2], block[i + 3]), scale.inverse);
      for (std::size_t j = 0; j < 4; ++j) {
        const float error = std::abs(dequantise(codeAt(codes, j), scale.scale) - block[i + j]);
        EXPECT_LE(error, std::max(std::abs(block[i + j]) / 16, scale.scale / 1024) * 1.00001f) << block[i + j];
      }
    }
  }
}

}  // namespace
}  // namespace moe::test
