// Rows that are cast, against a reference that searches all codes, and against the rules of moecomm.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "moecomm.h"
#include "support/base/rng.h"
#include "support/cases/library_cast.h"
#include "support/reference/cast_reference.h"
#include "support/reference/reference.h"

namespace moe::test {
namespace {

constexpr float kEndless = std::numeric_limits<float>::infinity(), kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr std::array kAllCasts = {moeCastFp8,   moeCastFp8Ue8m0, moeCastFp8Pow2,
                                  moeCastMxfp8, moeCastMxfp4,    moeCastNvfp4};

void expectAsTheReference(const ReferenceRule& rule, int rowType, const Bytes& source, int elements) {
  const ReferenceCast expected = referenceCast(rule, rowType, source.data(), elements);
  const ReferenceCast found = castOfLibrary(rule, rowType, source, elements);
  const auto where = [&] {
    return fmt::format("cast {} exact {} input {} global {} type {}", rule.cast, rule.exact, rule.inputScale,
                       rule.globalScale, rowType);
  };
  for (std::size_t i = 0; i < expected.scales.size(); ++i) {
    ASSERT_EQ(found.scales[i], expected.scales[i]) << "scales, word " << i << "; " << where();
  }
  for (std::size_t i = 0; i < expected.codes.size(); ++i) {
    ASSERT_EQ(found.codes[i], expected.codes[i]) << "codes, byte " << i << "; " << where();
  }
}

// Every rule of a format that a test has: input scales, and for NVFP4 global ones.
std::vector<ReferenceRule> rulesOf(int cast) {
  std::vector<ReferenceRule> rules;
  for (const float input : {1.0f, -1.0f, 0.37f, 1e-6f, 1e-30f, 3e30f, 0.0f, -0.0f}) {
    for (const float global : {1.0f, 448 * 6 / 37.5f, 1e-4f, 1e20f, FLT_MAX, FLT_TRUE_MIN}) {
      if (cast != moeCastNvfp4 && global != 1.0f) continue;
      for (const bool exact : {false, true}) {
        if (!exact || cast <= moeCastFp8Pow2) rules.push_back({cast, exact, input, global});
      }
    }
  }
  return rules;
}

// All values in order, so that blocks hold neighbours, and in an order in which blocks hold all magnitudes.
Bytes allHalves(std::uint32_t step) {
  Bytes row(2 << 16);
  for (std::uint32_t i = 0; i < 0x10000u; ++i) {
    const auto half = static_cast<std::uint16_t>(i * step);
    std::memcpy(row.data() + 2 * i, &half, 2);
  }
  return row;
}

TEST(Cast, IsThatOfTheReferenceForEveryBf16) {
  for (const int cast : kAllCasts) {
    for (const ReferenceRule& rule : rulesOf(cast)) {
      for (const std::uint32_t step : {1u, 40503u, 129u}) {
        ASSERT_NO_FATAL_FAILURE(expectAsTheReference(rule, kBf16, allHalves(step), 0x10000));
      }
    }
  }
}

TEST(Cast, IsThatOfTheReferenceForEveryFp16) {
  for (const int cast : kAllCasts) {
    for (const float input : {1.0f, -0.37f, 1e-4f}) {
      for (const std::uint32_t step : {1u, 40503u}) {
        ASSERT_NO_FATAL_FAILURE(expectAsTheReference({cast, false, input, 20.0f}, kFp16, allHalves(step), 0x10000));
      }
    }
  }
}

// Elements of a few binades below a block's largest, as activations are, with mantissas that decide ties.
TEST(Cast, IsThatOfTheReferenceForRandomGroups) {
  constexpr std::uint64_t kSeed = 20261125;
  Rng rng(kSeed);
  constexpr int kElements = 1 << 15;
  for (int round = 0; round < 8; ++round) {
    Bytes row(4 * kElements);
    for (int i = 0, exponent = 0; i < kElements; ++i) {
      if (i % 16 == 0) exponent = rng.oneIn(8) ? rng.between(0, 255) : rng.between(100, 150);
      const int own = std::max(0, exponent - rng.between(0, 5));
      const std::uint32_t mantissa =
          rng.coin() ? static_cast<std::uint32_t>(rng.below(1 << 23)) : static_cast<std::uint32_t>(rng.below(16)) << 19;
      const std::uint32_t bits = static_cast<std::uint32_t>(own) << 23 | mantissa | (rng.coin() ? 0x80000000u : 0u);
      std::memcpy(row.data() + 4 * i, &bits, 4);
    }
    for (const int cast : kAllCasts) {
      const float input = round % 2 == 0 ? 1.0f : 1.37f;
      ASSERT_NO_FATAL_FAILURE(expectAsTheReference({cast, round > 3, input, 77.0f}, kFp32, row, kElements))
          << "seed " << kSeed << ", round " << round;
    }
  }
}

// Rows end in the middle of a tile, and scales behind the end are 0.
TEST(Cast, RowsOfAllLengthsAreThoseOfTheReference) {
  Rng rng(7);
  for (int elements = 128; elements <= 2048; elements += 128) {
    Bytes row(static_cast<std::size_t>(2 * elements));
    for (int i = 0; i < elements; ++i) encodeElement(kBf16, static_cast<float>(rng.between(-99, 99)), row.data(), i);
    for (const int cast : kAllCasts) ASSERT_NO_FATAL_FAILURE(expectAsTheReference({cast}, kBf16, row, elements));
  }
}

// docs/guide/formats.md has these sizes.
TEST(Cast, RowsHaveTheSizesOfTheirFormats) {
  const auto sizes = [](int cast, int elements) {
    EXPECT_EQ(static_cast<int>(castRowBytes(cast, elements)), referenceSizes(cast, elements).rowBytes) << elements;
    EXPECT_EQ(castCodeBytes(cast, elements), referenceSizes(cast, elements).codeBytes) << elements;
    EXPECT_EQ(castScaleWords(cast, elements), referenceSizes(cast, elements).scaleWords) << elements;
    return castRowBytes(cast, elements);
  };
  constexpr int kH = 7168;
  EXPECT_EQ(sizes(moeCastFp8, kH), kH + kH / 32u);
  EXPECT_EQ(sizes(moeCastFp8Pow2, kH), kH + kH / 32u);
  EXPECT_EQ(sizes(moeCastFp8Ue8m0, kH), kH + kH / 128u + 8);  // up to a multiple of 16
  EXPECT_EQ(sizes(moeCastFp8Ue8m0, 4 * kH), 4 * kH + 4 * kH / 128u);
  EXPECT_EQ(sizes(moeCastMxfp8, kH), kH + kH / 32u);
  EXPECT_EQ(sizes(moeCastMxfp4, kH), kH / 2 + kH / 32u);
  EXPECT_EQ(sizes(moeCastNvfp4, kH), kH / 2 + kH / 16u);
  for (const int cast : kAllCasts) {
    for (int elements = 128; elements <= 4096; elements += 128) sizes(cast, elements);
  }
}

TEST(E2m1, HasEightMagnitudesAndRoundsToTheEvenOne) {
  constexpr std::array kValues = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const auto codeOf = [](float value) { return E2m1::fromMagnitude(value); };
  for (std::uint32_t code = 0; code < 8; ++code) {
    EXPECT_EQ(E2m1::toFloat(code), kValues[code]);
    EXPECT_EQ(E2m1::toFloat(code | 8u), -kValues[code]);
    EXPECT_EQ(codeOf(kValues[code]), code);
    if (code == 7) break;
    const float middle = (kValues[code] + kValues[code + 1]) / 2;
    EXPECT_EQ(codeOf(std::nextafter(middle, 0.0f)), code);
    EXPECT_EQ(codeOf(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(codeOf(std::nextafter(middle, 9.0f)), code + 1);
  }
  EXPECT_TRUE(std::signbit(E2m1::toFloat(8)));
  for (const float value : {6.5f, 1e30f, FLT_MAX, kEndless}) EXPECT_EQ(codeOf(value), 7u);
  EXPECT_EQ(codeOf(FLT_TRUE_MIN), 0u);
  EXPECT_EQ(codeOf(kNoNumber), 0u);
}

// The way of GPUs and that of processors. Bits below those that are tried cannot change a code but at a tie.
TEST(E2m1, BothWaysGiveTheSameCode) {
  for (std::uint32_t high = 0; high < 0x8000u; ++high) {
    for (const std::uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0xffffu}) {
      const float magnitude = bitsToFloat(high << 16 | low);
      ASSERT_EQ(E2m1::byOneAddition(magnitude), E2m1::byRanges(magnitude)) << magnitude;
    }
  }
}

// Every code at every place of a word, beside others.
TEST(E2m1, EightCodesAreTheFloatsOfEach) {
  for (std::uint32_t code = 0; code < 16; ++code) {
    for (int at = 0; at < 8; ++at) {
      for (const std::uint32_t others : {0u, 0xffffffffu, 0x89abcdefu}) {
        const std::uint32_t word = (others & ~(15u << 4 * at)) | code << 4 * at;
        const E2m1Floats floats = E2m1Floats::of(word);
        for (int i = 0; i < 8; ++i) {
          EXPECT_EQ(floatToBits(floats.at(i)), floatToBits(E2m1::toFloat(word >> 4 * i & 15u))) << word << " " << i;
        }
      }
    }
  }
}

// Signs of four elements go to the top bits of their codes.
TEST(E2m1, FourCodesHaveTheirSigns) {
  for (std::uint32_t signs = 0; signs < 16; ++signs) {
    FourFloats four{{1.0f, 6.0f, 0.0f, 0.5f}, 0};
    std::uint32_t expected = 0x1072;
    for (int i = 0; i < 4; ++i) {
      if ((signs >> i & 1u) == 0) continue;
      four.signs |= 0x80u << 8 * i;
      expected |= 8u << 4 * i;
    }
    EXPECT_EQ(quantiseFourE2m1(four, 1.0f), expected);
  }
}

// The packing of GPUs, with each code at each place.
TEST(E2m1, EightMagnitudesGiveTheirCodes) {
  constexpr std::array kValues = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  for (std::size_t turn = 0; turn < 8; ++turn) {
    std::uint32_t expected = 0;
    for (std::size_t i = 0; i < 8; ++i) expected |= static_cast<std::uint32_t>((i + turn) % 8) << 4 * i;
    EXPECT_EQ(eightE2m1([&](int i) { return kValues[(static_cast<std::size_t>(i) + turn) % 8]; }), expected);
  }
  EXPECT_EQ(eightE2m1([](int i) { return i % 2 == 0 ? FLT_MAX : kEndless; }), 0x77777777u);
}
TEST(E2m1, TopBitsOfEightWordsAreThoseOfHalfBytes) {
  for (int i = 0; i < 8; ++i) {
    std::uint32_t words[8] = {1, 0x7fffffffu, 2, 0x7f800000u, 3, 4, 0x00800000u, 5};
    words[i] |= 0x80000000u;
    EXPECT_EQ(BytesOfEight::of<3>(words).topBits(), 8u << 4 * i);
  }
}

// One block of 128 elements: the given ones, then zeros.
ReferenceCast castOf(ReferenceRule rule, const std::vector<float>& given) {
  Bytes row(128 * 4);
  std::memcpy(row.data(), given.data(), given.size() * 4);
  return castOfLibrary(rule, kFp32, row, 128);
}

TEST(Cast, OfZerosHasCodesOfZeroAndTheirSigns) {
  for (const ReferenceRule& rule : {ReferenceRule{moeCastMxfp8}, {moeCastMxfp4}, {moeCastNvfp4}}) {
    const ReferenceCast cast = castOf(rule, {0.0f, -0.0f, 0.0f, -0.0f});
    EXPECT_EQ(cast.scales, std::vector<std::uint32_t>(cast.scales.size(), 0u));
    if (rule.cast == moeCastMxfp8) {
      EXPECT_EQ(cast.codes[1], 0x80);
    } else {
      EXPECT_EQ(cast.codes[0], 0x80);  // the odd element is in the high half
      EXPECT_EQ(cast.codes[1], 0x80);
    }
    EXPECT_EQ(cast.codes[4], 0);
  }
}

// As moecomm.h says, each code has the sign of its element, even if all codes of a block are zeros.
TEST(Cast, OfABlockThatKeepsNothingHasZerosWithTheSignsOfItsElements) {
  const std::vector<float> small = {1e-3f, -1e-3f, 0.0f, -0.0f}, endless = {kEndless, -kEndless, 1.0f, -1.0f};
  const auto signsOf = [](const ReferenceRule& rule, const std::vector<float>& given) {
    const ReferenceCast cast = castOf(rule, given);
    EXPECT_EQ(cast.codes[0], 0x80) << rule.cast;
    EXPECT_EQ(cast.codes[1], 0x80) << rule.cast;
    return cast.scales[0] & 0xffu;
  };
  EXPECT_EQ(signsOf({moeCastNvfp4}, small), 0u);
  EXPECT_EQ(signsOf({moeCastNvfp4, false, 1, FLT_TRUE_MIN}, endless), 0u);
  for (std::vector<float> lost : {small, endless}) {
    for (const float noNumber : {kNoNumber, -kNoNumber}) {
      lost.resize(4);
      lost.push_back(noNumber);
      for (const int cast : {moeCastMxfp4, moeCastNvfp4}) {
        EXPECT_EQ(signsOf({cast}, lost), cast == moeCastNvfp4 ? 0x7fu : 0xffu);
        EXPECT_EQ(castOf({cast}, lost).codes[2], std::signbit(noNumber) ? 0x08 : 0x00);
      }
    }
  }
}

// The factor of moeCastFp8 is 448 / amax. It is not the inverse of the rounded scale, which would give other codes.
TEST(Cast, MultipliesByTheQuotientOfTheLargestElementNotByTheInverseOfTheScale) {
  int others = 0;
  for (int i = 1; i < 4096; ++i) {
    const float amax = 1.0f + static_cast<float>(i) * 0x1p-12f, scale = amax / 448.0f, factor = 448.0f / amax;
    float element = 136.0f / factor;  // near the middle between the codes of 128 and 144
    element = std::nextafter(std::nextafter(element, 0.0f), 0.0f);
    for (int step = 0; step < 5; ++step, element = std::nextafter(element, 2.0f)) {
      const std::uint32_t code = E4m3::fromFloat(element * factor);
      ASSERT_EQ(castOf({moeCastFp8}, {amax, element}).codes[1], code) << amax << ", " << element;
      others += code != E4m3::fromFloat(element * (1.0f / scale)) ? 1 : 0;
    }
  }
  EXPECT_GT(others, 0);
}

TEST(Cast, PutsTheEvenElementInTheLowHalf) {
  EXPECT_EQ(castOf({moeCastMxfp4}, {6, 1, -4, 0.5f}).codes[0], 0x27);
  EXPECT_EQ(castOf({moeCastMxfp4}, {6, 1, -4, 0.5f}).codes[1], 0x1e);
  EXPECT_EQ(castOf({moeCastNvfp4}, {6, 1, -4, 0.5f}).codes[1], 0x1e);
}

TEST(Cast, OfWhatIsNoNumberHasTheScaleOfNoneWhereCodesHaveNone) {
  const ReferenceCast mxfp8 = castOf({moeCastMxfp8}, {448, kNoNumber, -kNoNumber});
  EXPECT_EQ(mxfp8.scales[0], 127u);
  EXPECT_EQ(mxfp8.codes[0], 0x7e);
  EXPECT_EQ(mxfp8.codes[1], 0x7f);
  EXPECT_EQ(mxfp8.codes[2], 0xff);
  const ReferenceCast mxfp4 = castOf({moeCastMxfp4}, {6, kNoNumber, -6, kEndless});
  EXPECT_EQ(mxfp4.scales[0], 0xffu);  // only the first block's scale
  EXPECT_EQ(mxfp4.codes[0], 0x00);
  EXPECT_EQ(mxfp4.codes[1], 0x08);
  const ReferenceCast nvfp4 = castOf({moeCastNvfp4}, {6, -kNoNumber});
  EXPECT_EQ(nvfp4.scales[0], 0x7fu);
  EXPECT_EQ(nvfp4.codes[0], 0x80);
}

TEST(Cast, OfAnInfinityIsTheLargestCode) {
  const ReferenceCast mxfp8 = castOf({moeCastMxfp8}, {-kEndless, 1});
  EXPECT_EQ(mxfp8.scales[0], 247u);
  EXPECT_EQ(mxfp8.codes[0], 0xfe);
  EXPECT_EQ(mxfp8.codes[1], 0);
  const ReferenceCast mxfp4 = castOf({moeCastMxfp4}, {-kEndless, 1});
  EXPECT_EQ(mxfp4.scales[0], 253u);
  EXPECT_EQ(mxfp4.codes[0], 0x0f);
  const ReferenceCast nvfp4 = castOf({moeCastNvfp4}, {-kEndless, 1});
  EXPECT_EQ(nvfp4.scales[0], 0x7eu);
  EXPECT_EQ(nvfp4.codes[0], 0x0f);
}

TEST(Cast, OfNvfp4WithTheGlobalScaleOfItsTensorUsesTheWholeRange) {
  const float amax = 3.0f, global = 448 * 6 / amax;
  const ReferenceRule rule{moeCastNvfp4, false, 1, global};
  const ReferenceCast cast = castOf(rule, {amax, -amax / 2});
  EXPECT_EQ(cast.scales[0], 0x7eu);
  EXPECT_EQ(cast.codes[0], 0xd7);
  EXPECT_EQ(dequantised(rule, cast)[0], amax);
  EXPECT_EQ(dequantised(rule, cast)[1], -amax / 2);
  // Too small a scale for e4m3: nothing is left.
  EXPECT_EQ(castOf({moeCastNvfp4}, {1e-3f, -1e-3f}).scales[0], 0u);
  EXPECT_EQ(castOf({moeCastNvfp4}, {1e-3f, -1e-3f}).codes[0], 0x80);
}

// The bounds of docs/guide/formats.md relative to amax and to an element, for blocks whose scales do not underflow.
TEST(Cast, DequantisedElementsAreAsCloseAsTheirFormatPromises) {
  struct Bound {
    int cast;
    double ofElement, ofAmax;  // the error is below the larger of the two
  };
  for (const Bound& bound : {Bound{moeCastFp8, 1.0 / 16, 0x1p-10 / 448},
                             {moeCastFp8Ue8m0, 1.0 / 16, 0x1p-9 / 448},
                             {moeCastFp8Pow2, 1.0 / 16, 0x1p-9 / 448},
                             {moeCastMxfp8, 1.0 / 16, 0x1p-9 / 448},
                             {moeCastMxfp4, 0.2, 1.0 / 12},
                             {moeCastNvfp4, 0.2, 1.0 / 20}}) {
    Rng rng(11);
    constexpr int kElements = 1 << 14;
    Bytes row(4 * kElements);
    for (int i = 0; i < kElements; ++i) {
      encodeElement(kFp32, static_cast<float>(rng.between(-1 << 20, 1 << 20)) * 0x1p-18f, row.data(), i);
    }
    const ReferenceRule rule{bound.cast, false, 1, 448 * 6 / 4.0f};
    const std::vector<double> back = dequantised(rule, castOfLibrary(rule, kFp32, row, kElements));
    const int block = referenceSizes(bound.cast, kElements).block;
    for (int i = 0; i < kElements; ++i) {
      double amax = 0;
      for (int j = i / block * block; j < (i / block + 1) * block; ++j) {
        amax = std::max(amax, std::abs(static_cast<double>(decodeElement(kFp32, row.data(), j))));
      }
      const double element = decodeElement(kFp32, row.data(), i);
      const double most = std::max(std::abs(element) * bound.ofElement, amax * bound.ofAmax) * 1.000001;
      ASSERT_LE(std::abs(back[static_cast<std::size_t>(i)] - element), most)
          << "cast " << bound.cast << ", " << element;
    }
  }
}

}  // namespace
}  // namespace moe::test
