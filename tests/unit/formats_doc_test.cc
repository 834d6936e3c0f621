// docs/guide/formats.md describes the casts. The test computes its examples, its limits and its errors again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "device/rows/fp8.h"
#include "moecomm.h"
#include "support/base/rng.h"
#include "support/cases/library_cast.h"
#include "support/cases/library_wire.h"
#include "support/reference/reference.h"

namespace moe::test {
namespace {

std::string document() {
  std::ifstream in(MOECOMM_SOURCE_DIR "/docs/guide/formats.md");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct Cast {
  std::uint32_t code;
  float back;
};

Cast castOf(float element, Fp8Scale scale) {
  const std::uint32_t code = quantise<Fp32>({floatToBits(element), 0, 0, 0}, scale.inverse).word[0] & 0xffu;
  return {code, dequantise(code, scale.scale)};
}

// The table row of an element that is alone in its block.
std::string row(float element) {
  const float amax = amaxOf<Fp32>({floatToBits(element), 0, 0, 0});
  const Fp8Scale scale = fp8Scale(amax);
  const Cast fp8 = castOf(element, scale), ue8m0 = castOf(element, ue8m0Scale(amax));
  return fmt::format("| {:.4g} | {:.4g} | 0x{:02x} | {:.4g} | {} | 0x{:02x} | {:.4g} |\n", element, scale.scale,
                     fp8.code, fp8.back, Ue8m0::scaleOf(amax), ue8m0.code, ue8m0.back);
}

TEST(FormatsDocument, ShowsWhatACastMakesOfAnElement) {
  std::string table = "|---|---|---|---|---|---|---|\n";
  for (const float element : {448.0f, 1.0f, -0.3f, 1e-4f, 1e-5f, 3.5e-9f, 1e-9f, 2e-10f, 0.0f,
                              std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    table += row(element);
  }
  EXPECT_NE(document().find(table + "\n"), std::string::npos) << "the table is now:\n" << table;
}

// True if the document has this limit of magnitudes, for blocks that are small throughout.
bool saysLimit(const char* limit, const char* effect) {
  return document().find(fmt::format("| {} | {}", limit, effect)) != std::string::npos;
}

TEST(FormatsDocument, SaysWhatTheFloorCosts) {
  const Fp8Scale least = fp8Scale(0);
  EXPECT_EQ(fp8Scale(1e-5f).scale, least.scale);
  EXPECT_LT(least.scale, fp8Scale(1.1e-4f).scale);
  EXPECT_TRUE(saysLimit("1e-4", "the scale stays"));
  // A normal code is at least 2^-6. Half the least code and anything below it becomes 0.
  EXPECT_TRUE(saysLimit("3.5e-9", "fewer"));
  EXPECT_GE(castOf(3.5e-9f, least).code, 0x08u);
  EXPECT_LT(castOf(3.2e-9f, least).code, 0x08u);
  EXPECT_TRUE(saysLimit("2.1e-10", "nothing"));
  EXPECT_EQ(castOf(2.1e-10f, least).code, 0u);
  EXPECT_EQ(castOf(2.3e-10f, least).code, 1u);
}

// Rows of bf16 numbers as they are distributed in activations: a bell, here the sum of twelve even draws, and in one of
// 256 an outlier of ten times that. Only arithmetic that is the same everywhere.
Bytes activations(int elements) {
  Rng rng(20261125);
  Bytes row(static_cast<std::size_t>(2 * elements));
  for (int i = 0; i < elements; ++i) {
    double sum = 0;
    for (int k = 0; k < 12; ++k) sum += rng.below(1 << 20) * 0x1p-20;
    encodeElement(kBf16, static_cast<float>((sum - 6) * (rng.oneIn(256) ? 10 : 1)), row.data(), i);
  }
  return row;
}

std::string errorRow(const char* name, const ReferenceRule& rule) {
  constexpr int kElements = 1 << 16;
  const Bytes row = activations(kElements);
  const std::vector<double> back = dequantised(rule, castOfLibrary(rule, kBf16, row, kElements));
  double errors = 0, all = 0, worst = 0;
  const int block = referenceSizes(rule.cast, kElements).block;
  for (int first = 0; first < kElements; first += block) {
    double amax = 0, largest = 0;
    for (int i = first; i < first + block; ++i) {
      const double element = decodeElement(kBf16, row.data(), i);
      const double error = back[static_cast<std::size_t>(i)] - element;
      errors += error * error;
      all += element * element;
      amax = std::max(amax, std::abs(element));
      largest = std::max(largest, std::abs(error));
    }
    worst = std::max(worst, largest / amax);
  }
  return fmt::format("| {} | {} | {:.2f} % | {:.2f} % |\n", name, referenceSizes(rule.cast, 7168).rowBytes,
                     100 * std::sqrt(errors / all), 100 * worst);
}

TEST(FormatsDocument, SaysWhatEachCastLoses) {
  float most = 0;
  const Bytes row = activations(1 << 16);
  for (int i = 0; i < 1 << 16; ++i) most = std::max(most, std::abs(decodeElement(kBf16, row.data(), i)));
  const std::string table = errorRow("`moeCastFp8`", {moeCastFp8}) + errorRow("`moeCastFp8Pow2`", {moeCastFp8Pow2}) +
                            errorRow("`moeCastFp8Ue8m0`", {moeCastFp8Ue8m0}) +
                            errorRow("`moeCastMxfp8`", {moeCastMxfp8}) + errorRow("`moeCastMxfp4`", {moeCastMxfp4}) +
                            errorRow("`moeCastNvfp4`", {moeCastNvfp4, false, 1, 448 * 6 / most});
  EXPECT_NE(document().find(table + "\n"), std::string::npos) << "the table is now:\n" << table;
}

// The sum of eight ranks' rows, whose elements are normally distributed as far as twelve even draws are.
std::string wireErrorRow(const char* name, int wire, float size) {
  constexpr int kElements = 7168, kRanks = 8, kTokens = 8;
  Rng rng(20261125);
  double errors = 0, all = 0, sumErrors = 0, sumsAll = 0;
  for (int token = 0; token < kTokens; ++token) {
    std::vector<double> exact(kElements), found(kElements);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<float> row(kElements);
      for (float& element : row) {
        double sum = -6;
        for (int k = 0; k < 12; ++k) sum += rng.below(1 << 20) * 0x1p-20;
        element = static_cast<float>(sum) * size;
      }
      std::vector<float> back = row;
      if (wire != moeWireRow) back = readByLibrary(wire, wireOfLibrary(wire, row), kElements);
      Bytes rounded(2 * kElements);
      for (int i = 0; i < kElements; ++i) {
        const auto at = static_cast<std::size_t>(i);
        if (wire == moeWireRow) encodeElement(kBf16, row[at], rounded.data(), i);
        if (wire == moeWireRow) back[at] = decodeElement(kBf16, rounded.data(), i);
        const double error = double{back[at]} - row[at];
        errors += error * error;
        all += double{row[at]} * row[at];
        exact[at] += row[at];
        found[at] += back[at];
      }
    }
    for (std::size_t i = 0; i < exact.size(); ++i) {
      sumErrors += (found[i] - exact[i]) * (found[i] - exact[i]);
      sumsAll += exact[i] * exact[i];
    }
  }
  const int bytes = wire == moeWireRow ? 2 * kElements : static_cast<int>(WireRow{wire, kElements}.bytes());
  return fmt::format("| {} | {} | {} | {:.2f} % | {:.2f} % |\n", name, bytes, size, 100 * std::sqrt(errors / all),
                     100 * std::sqrt(sumErrors / sumsAll));
}

TEST(FormatsDocument, SaysWhatEachWireLoses) {
  std::string table;
  for (const float size : {1.0f, 0.001f}) {
    table += wireErrorRow("`moeWireRow`, bf16", moeWireRow, size) + wireErrorRow("`moeWireFp8`", moeWireFp8, size) +
             wireErrorRow("`moeWireFp8Block`", moeWireFp8Block, size) +
             wireErrorRow("`moeWireNvfp4`", moeWireNvfp4, size) +
             wireErrorRow("`moeWireLogfmt10`", moeWireLogfmt10, size);
  }
  EXPECT_NE(document().find(table + "\n"), std::string::npos) << "the table is now:\n" << table;
}

// The worst element of a LogFMT-10 group whose magnitudes span this many octaves.
TEST(FormatsDocument, SaysWhatAStepOfALogarithmCosts) {
  for (const auto& [octaves, error] : {std::pair{1, "0.07"}, {4, "0.27"}, {8, "0.55"}, {16, "1.1"}, {32, "2.2"}}) {
    const std::string row = fmt::format("| {}/510 | {} % |\n", octaves, error);
    EXPECT_NE(document().find(row), std::string::npos) << row;
    const double most = 50 * (std::exp2(octaves / 510.0) - 1);
    EXPECT_LT(std::abs(std::stod(error) - most), most / 20);
    std::vector<float> sums;
    for (int i = 0; i < 4096; ++i) {
      const double log = i % 128 == 0 ? 0.0 : i % 128 == 1 ? -octaves : -octaves * (i / 4096.0);
      sums.push_back(static_cast<float>(std::exp2(log)));
    }
    double worst = 0;
    const auto values = readByLibrary(moeWireLogfmt10, wireOfLibrary(moeWireLogfmt10, sums), 4096);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      worst = std::max(worst, 100 * std::abs(double{values[i]} / double{sums[i]} - 1));
    }
    EXPECT_LT(worst, most + 0.001);
    EXPECT_GT(worst, most * 0.9);
  }
}

TEST(FormatsDocument, SaysWhatSmallBlocksMakeOfAnElement) {
  std::string table;
  for (const float element : {6.0f, 1.0f, -0.3f, 1e-4f, 0.0f, std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
    Bytes row(128 * 4);
    std::memcpy(row.data(), &element, sizeof element);
    table += fmt::format("| {:.4g} |", element);
    for (const int cast : {moeCastMxfp8, moeCastMxfp4, moeCastNvfp4}) {
      const ReferenceRule rule{cast};
      const ReferenceCast made = castOfLibrary(rule, kFp32, row, 128);
      table += fmt::format(" 0x{:02x} | 0x{:02x} | {:.4g} |", made.scales[0] & 0xffu,
                           made.codes[0] & (cast == moeCastMxfp8 ? 0xffu : 0xfu), dequantised(rule, made)[0]);
    }
    table += "\n";
  }
  EXPECT_NE(document().find(table + "\n"), std::string::npos) << "the table is now:\n" << table;
}

}  // namespace
}  // namespace moe::test
