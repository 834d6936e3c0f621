// docs/guide/formats.md describes the cast to fp8. The test computes its examples and its limits again.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "device/rows/fp8.h"

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

}  // namespace
}  // namespace moe::test
