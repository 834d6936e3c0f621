// LogFMT-10 against its formula in double: codes, values, and the logarithms that they are made of. Where the library's
// logarithms are rounded, a code may be the next one if the exact place is that near to a boundary.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>

#include "device/rows/logfmt.h"
#include "moecomm.h"
#include "support/base/rng.h"
#include "support/cases/library_wire.h"

namespace moe::test {
namespace {

// The errors that logfmt.h promises.
constexpr double kLogError = 1.3e-6, kPowerError = 3.3e-7, kPlaceError = 4e-6, kValueError = 5e-6;

TEST(LogFmt, LogarithmsAreAsCloseAsTheHeaderSays) {
  double worst = 0;
  float before = 0;
  for (std::uint32_t fraction = 0; fraction < 1u << 23; ++fraction) {
    const float found = logfmt::logOfFraction(fraction);
    worst = std::max(worst, std::abs(found - std::log2(1 + fraction * 0x1p-23)));
    ASSERT_GE(found, before - 1e-6F) << fraction;
    before = found;
  }
  EXPECT_LT(worst, kLogError);
  EXPECT_GT(worst, kLogError / 2) << "the header says too much";
  EXPECT_EQ(logfmt::logOfFraction(0), 0.0f) << "so octaves meet";
}

TEST(LogFmt, PowersAreAsCloseAsTheHeaderSays) {
  double worst = 0;
  for (int i = -(1 << 22); i <= 1 << 22; ++i) {
    const auto f = static_cast<float>(i * 0x1p-23);
    worst = std::max(worst, std::abs(logfmt::powerOfTwo(f) / std::exp2(double{f}) - 1));
  }
  EXPECT_LT(worst, kPowerError);
  EXPECT_GT(worst, kPowerError / 2) << "the header says too much";
  EXPECT_EQ(logfmt::powerOfTwo(0), 1.0f);
}

// A row, read independently of the library.
struct LogRow {
  const Bytes& bytes;
  std::size_t elements;

  int bits(std::size_t at, std::size_t count) const {
    int value = 0;
    for (std::size_t i = 0; i < count; ++i) value |= (bytes[(at + i) / 8] >> (at + i) % 8 & 1) << i;
    return value;
  }
  int half(std::size_t group, std::size_t which) const {
    return bits(8 * (elements + elements / 4 + 4 * group + 2 * which), 16);
  }
  static double bf16(int half) { return double{bitsToFloat(static_cast<std::uint32_t>(half) << 16)}; }
  int field(std::size_t i) const {
    const std::size_t piece = i / 16, e = i % 16;
    const auto word = [&](std::size_t w) { return 8 * (w < 4 ? 16 * piece + 4 * w : elements + 4 * piece); };
    if (e < 15) return bits(word(e / 3) + 10 * (e % 3), 10);
    int value = 0;
    for (std::size_t w = 0; w < 5; ++w) value |= bits(word(w) + 30, 2) << 2 * w;
    return value;
  }
  int code(std::size_t i) const { return 511 - (field(i) & 511); }
  bool negative(std::size_t i) const { return (field(i) & 512) != 0; }
};

// The largest errors of an element and of a code, in octaves and relative.
struct LogErrors {
  double place = 0, value = 0;
};

void compareGroup(const std::vector<float>& sums, const LogRow& row, const std::vector<float>& values,
                  std::size_t group, LogErrors* errors) {
  double amax = 0, amin = HUGE_VAL;
  for (std::size_t i = 128 * group; i < 128 * group + 128; ++i) {
    amax = std::max(amax, std::abs(double{sums[i]}));
    amin = std::min(amin, std::abs(double{sums[i]}));
  }
  const double most = LogRow::bf16(row.half(group, 0)), least = LogRow::bf16(row.half(group, 1));
  // Nearest bf16 numbers outside.
  ASSERT_TRUE(most >= amax && most <= amax * (1 + 0x1p-7) + FLT_MIN) << most << " for " << amax;
  ASSERT_TRUE(least <= amin && least >= amin * (1 - 0x1p-7) - FLT_MIN) << least << " for " << amin;
  const double la = std::log2(std::max(most, 0x1p-93));
  const double li = std::min(la - 1, least > 0 ? std::max(std::log2(least), la - 32) : la - 32);
  const double step = (la - li) / 510, rounding = 2 - std::log2((1 + std::exp2(step)) / 2) / step;
  for (std::size_t i = 128 * group; i < 128 * group + 128; ++i) {
    const double x = std::abs(double{sums[i]});
    const double exact = x == 0 ? 0 : std::max((std::log2(x) - li) / step + rounding, 0.0);
    const int code = row.code(i);
    const double off = code > exact ? code - exact : exact - (code + 1);  // beyond the code's interval
    if (off > 0) errors->place = std::max(errors->place, off * step);
    ASSERT_LE(off * step, kPlaceError) << sums[i] << " has code " << code << ", exactly " << exact;
    const double value = code == 0 ? 0 : std::exp2((code - 1) * step + li);
    const double found = std::abs(double{values[i]});
    if (code > 0) errors->value = std::max(errors->value, std::abs(found / value - 1));
    ASSERT_NEAR(found, value, value * kValueError) << "code " << code;
    ASSERT_EQ(row.negative(i), code > 0 && sums[i] < 0);
    ASSERT_EQ(values[i] < 0, row.negative(i));
  }
}

LogErrors compareRow(const std::vector<float>& sums) {
  LogErrors errors;
  const Bytes bytes = wireOfLibrary(moeWireLogfmt10, sums);
  const auto values = readByLibrary(moeWireLogfmt10, bytes, static_cast<int>(sums.size()));
  for (std::size_t group = 0; group < sums.size() / 128 && !::testing::Test::HasFatalFailure(); ++group) {
    compareGroup(sums, {bytes, sums.size()}, values, group, &errors);
  }
  return errors;
}

// Magnitudes of `octaves` binary orders, the largest near 2^top.
std::vector<float> spread(Rng& rng, int top, double octaves) {
  std::vector<float> sums(256);
  for (float& sum : sums) {
    const double log = top - octaves * rng.below(1 << 20) * 0x1p-20;
    sum = static_cast<float>(std::exp2(log) * (rng.coin() ? 1 : -1));
  }
  return sums;
}

TEST(LogFmt, CodesAndValuesAreThoseOfTheFormula) {
  Rng rng(20261125);
  LogErrors worst;
  for (int round = 0; round < 4000 && !HasFatalFailure(); ++round) {
    const double octaves = 0.01 * (1 << rng.below(13));  // 0.01 to 41
    std::vector<float> sums = spread(rng, rng.between(-150, 127), octaves);
    if (rng.oneIn(4)) sums[static_cast<std::size_t>(rng.below(256))] = 0;
    const LogErrors found = compareRow(sums);
    worst.place = std::max(worst.place, found.place);
    worst.value = std::max(worst.value, found.value);
  }
  EXPECT_GT(worst.place, kPlaceError / 4) << "the header says too much";
  EXPECT_GT(worst.value, kValueError / 4) << "the header says too much";
}

// The largest error of an element: half a step, up or down; far below the largest magnitude, its whole value.
TEST(LogFmt, AnElementIsOffByHalfAStep) {
  Rng rng(5);
  for (const double octaves : {0.5, 4.0, 12.0, 31.0}) {
    const std::vector<float> sums = spread(rng, 3, octaves);
    const auto values = readByLibrary(moeWireLogfmt10, wireOfLibrary(moeWireLogfmt10, sums), 256);
    const double most = (std::exp2(std::max(octaves + 0.03, 1.0) / 510) - 1) / 2 + 1e-5;
    double worst = 0;
    for (std::size_t i = 0; i < sums.size(); ++i) {
      worst = std::max(worst, std::abs(double{values[i]} / double{sums[i]} - 1));
    }
    EXPECT_LT(worst, most) << octaves;
    EXPECT_GT(worst, most / 2) << octaves;
  }
}

TEST(LogFmt, NumbersThatAreNone) {
  const auto through = [](const std::vector<float>& sums) {
    return readByLibrary(moeWireLogfmt10, wireOfLibrary(moeWireLogfmt10, sums), static_cast<int>(sums.size()));
  };
  std::vector<float> sums(256, 2.0f);
  sums[3] = std::nanf("");
  std::vector<float> values = through(sums);
  for (std::size_t i = 0; i < 128; ++i) EXPECT_TRUE(std::isnan(values[i])) << i;
  for (std::size_t i = 128; i < 256; ++i) EXPECT_NEAR(values[i], 2.0f, 2e-5f) << i;

  const float largest = bitsToFloat(0x7f7f0000u);
  sums[3] = -INFINITY;
  sums[4] = FLT_MAX;
  sums[5] = 1e30f;
  values = through(sums);
  EXPECT_NEAR(values[3] / largest, -1.0f, 5e-6f);
  EXPECT_NEAR(values[4] / largest, 1.0f, 5e-6f);
  EXPECT_NEAR(values[5] / 1e30f, 1.0f, 0.022f);
  EXPECT_EQ(values[0], 0.0f) << "127 octaves below";

  values = through(std::vector<float>(128, -0.0f));
  for (const float value : values) EXPECT_EQ(floatToBits(value), 0u);
  sums.assign(128, FLT_TRUE_MIN), sums[0] = 0x1p-93f, sums[1] = 0x1p-124f, sums[2] = FLT_MIN;
  values = through(sums);
  EXPECT_NEAR(values[0], 0x1p-93f, 5e-6f * 0x1p-93f);
  EXPECT_NEAR(values[1], 0x1p-124f, 0.022f * 0x1p-124f);
  EXPECT_EQ(values[2], 0.0f);
  EXPECT_EQ(values[3], 0.0f) << "subnormal";
}

}  // namespace
}  // namespace moe::test
