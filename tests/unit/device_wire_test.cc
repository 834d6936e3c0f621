// The wire formats of combine: their bytes against a reference that searches all codes, the values that are read back,
// and the requirements of landing words.
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "moecomm.h"
#include "support/base/rng.h"
#include "support/cases/library_wire.h"
#include "support/reference/wire_reference.h"

namespace moe::test {
namespace {

constexpr float kWireInfinity = std::numeric_limits<float>::infinity(),
                kWireNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::array kAllWires = {moeWireFp8, moeWireFp8Block, moeWireNvfp4, moeWireLogfmt10};

void expectWireOfTheReference(int wire, const std::vector<float>& row) {
  const auto elements = static_cast<int>(row.size());
  std::vector<float> sums;
  for (const float element : row) sums.push_back(0.0f + element);  // sum of one row: a negative zero has lost its sign
  const ReferenceWire expected = referenceWire(wire, sums);
  const Bytes found = wireOfLibrary(wire, row);
  ASSERT_EQ(found.size(), expected.bytes.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_EQ(found[i], expected.bytes[i]) << "wire " << wire << ", byte " << i << " of " << elements << " elements";
  }
  const std::vector<float> values = readByLibrary(wire, found, elements);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected.values[i]) && std::isnan(values[i])) continue;
    ASSERT_EQ(values[i], expected.values[i]) << "wire " << wire << ", element " << i << ": " << sums[i];
  }
}

// Numbers of about one size, now and then of any.
std::vector<float> drawSums(Rng& rng, int elements) {
  std::vector<float> sums;
  const std::uint32_t top = static_cast<std::uint32_t>(rng.next()) % 0x7f800000u;
  for (int i = 0; i < elements; ++i) {
    const auto word = static_cast<std::uint32_t>(rng.next());
    sums.push_back(bitsToFloat(rng.oneIn(4) ? word : (top & 0x7f800000u) + (word & 0x81ffffffu)));
  }
  return sums;
}

TEST(Wire, RowsHaveTheseBytes) {
  EXPECT_EQ((WireRow{moeWireFp8, 7168}.bytes()), 7168u);
  EXPECT_EQ((WireRow{moeWireFp8Block, 7168}.bytes()), 7392u);
  EXPECT_EQ((WireRow{moeWireNvfp4, 7168}.bytes()), 4048u);
  EXPECT_EQ((WireRow{moeWireFp8Block, 128}.bytes()), 144u);
  EXPECT_EQ((WireRow{moeWireNvfp4, 128}.bytes()), 96u);
  EXPECT_EQ((WireRow{moeWireLogfmt10, 7168}.bytes()), 8960u + 224u);
  EXPECT_EQ((WireRow{moeWireLogfmt10, 128}.bytes()), 176u);
  for (const int wire : kAllWires) {
    for (int elements = 128; elements <= 16384; elements += 128) {
      const WireRow row{wire, elements};
      EXPECT_EQ(row.bytes() % 16, 0u);
      EXPECT_LE(row.bytes(), 2u * static_cast<unsigned>(elements)) << "no longer than bf16";
      if (elements < 1024) {
        EXPECT_EQ(row.bytes(), static_cast<unsigned>(referenceWireBytes(wire, elements)));
      }
    }
  }
}

// A row of one unit: element i is i - 64, so that its blocks differ.
TEST(Wire, TheBytesOfARowArePinned) {
  std::vector<float> sums;
  for (int i = 0; i < 128; ++i) sums.push_back(static_cast<float>(i - 64));
  const Bytes fp8 = wireOfLibrary(moeWireFp8, sums);
  EXPECT_EQ((Bytes{fp8.begin() + 62, fp8.begin() + 67}), (Bytes{0xc0, 0xb8, 0x00, 0x38, 0x40}));
  const Bytes block = wireOfLibrary(moeWireFp8Block, sums);
  EXPECT_EQ(block[0], 0xfe) << "-448, for the largest";
  EXPECT_EQ((Bytes{block.begin() + 128, block.begin() + 132}), (Bytes{0x25, 0x49, 0x12, 0x3e})) << "64 / 448";
  const Bytes nvfp4 = wireOfLibrary(moeWireNvfp4, sums);
  EXPECT_EQ(nvfp4[0], 0x88) << "-6 and -6, magnitudes inverted";
  EXPECT_EQ(nvfp4[32] & 0xf, 0x7) << "zero";
  EXPECT_EQ(nvfp4[64], 0x7e) << "the scale of the first block: 448";
  for (int copy = 0; copy < 4; ++copy) {
    float factor = 0;
    std::memcpy(&factor, nvfp4.data() + 80 + 4 * copy, 4);
    EXPECT_EQ(factor, 64.0f / 2688.0f);
  }
  const Bytes log = wireOfLibrary(moeWireLogfmt10, sums);
  EXPECT_EQ((Bytes{log.begin() + 160, log.begin() + 164}), (Bytes{0x80, 0x42, 0x00, 0x00})) << "amax 64, amin 0";
  EXPECT_EQ((Bytes{log.begin(), log.begin() + 4}), (Bytes{0x00, 0x02, 0x18, 0xa0}))
      << "-64, -63, -62: signs, and 0, 0, 1 steps; of -49, 6 steps, the low bits";
}

TEST(Wire, IsThatOfTheReferenceForRandomRows) {
  Rng rng(20261125);
  for (int round = 0; round < 300; ++round) {
    const std::vector<float> sums = drawSums(rng, 128 * rng.between(1, 9));
    for (const int wire : kAllWires) ASSERT_NO_FATAL_FAILURE(expectWireOfTheReference(wire, sums)) << "round " << round;
  }
}

TEST(Wire, IsThatOfTheReferenceForRowsWithEdges) {
  for (const float edge : {0.0f, -0.0f, kWireInfinity, -kWireInfinity, kWireNan, -kWireNan, FLT_MAX, FLT_MIN,
                           FLT_TRUE_MIN, 1e-36f, 2.0f, 448.0f, 464.0f, 465.0f}) {
    for (const float rest : {0.0f, 1.0f, -3e-7f, 1e30f}) {
      std::vector<float> sums(384, rest);
      sums[5] = sums[140] = sums[383] = edge;
      for (const int wire : kAllWires) {
        ASSERT_NO_FATAL_FAILURE(expectWireOfTheReference(wire, sums)) << edge << " among " << rest;
        ASSERT_NO_FATAL_FAILURE(expectWireOfTheReference(wire, std::vector<float>(128, edge))) << edge;
      }
    }
  }
}

TEST(Wire, PartsMakeTheSameRow) {
  Rng rng(7);
  const std::vector<float> sums = drawSums(rng, 128 * 7);
  for (const int wire : kAllWires) {
    const Bytes whole = wireOfLibrary(wire, sums);
    for (const int units : {2, 3, 6}) {
      EXPECT_EQ(wireOfLibrary(wire, sums, units), whole);
      const auto values = readByLibrary(wire, whole, 896), again = readByLibrary(wire, whole, 896, units);
      EXPECT_EQ(std::memcmp(values.data(), again.data(), 896 * 4), 0);
    }
  }
}

// Each copy of a row's float belongs to one part.
TEST(Wire, EachCopyOfTheFloatHasOneTaker) {
  for (int parts = 1; parts <= kWireFactors; ++parts) {
    for (int copy = 0; copy < kWireFactors; ++copy) {
      int takers = 0;
      for (int i = 0; i < parts; ++i) takers += WirePart{0, 0, i, parts}.takesFactor(copy) ? 1 : 0;
      EXPECT_EQ(takers, 1);
      if (copy < parts) {
        EXPECT_TRUE((WirePart{0, 0, copy, parts}.takesFactor(copy)));
      }
    }
  }
}

// Landing words cannot carry such a word: queue/landing.h.
TEST(Wire, NoWordIsAllOnes) {
  Rng rng(11);
  std::vector<std::vector<float>> rows;
  for (const float value : {-1.0f, -0.0f, -kWireNan, -kWireInfinity, -1e-40f, -FLT_MAX}) rows.emplace_back(256, value);
  for (int i = 0; i < 200; ++i) rows.push_back(drawSums(rng, 256));
  for (std::vector<float>& row : rows) {
    for (const int wire : kAllWires) {
      const Bytes bytes = wireOfLibrary(wire, row);
      for (std::size_t at = 0; at < bytes.size(); at += 4) {
        std::uint32_t word = 0;
        std::memcpy(&word, bytes.data() + at, 4);
        ASSERT_NE(word, 0xffffffffu) << "wire " << wire << ", byte " << at;
      }
    }
  }
}

}  // namespace
}  // namespace moe::test
