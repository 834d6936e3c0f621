// What moe_perf understands: ranges of token counts.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "perf/moe_perf/token_counts.h"

namespace moe::test {
namespace {

using perf::parseTokenCounts;
using Counts = std::vector<int>;

TEST(PerfTokens, RangesAreMultipliedOrGoInSteps) {
  EXPECT_EQ(parseTokenCounts("128"), Counts{128});
  EXPECT_EQ(parseTokenCounts("0"), Counts{0});
  EXPECT_EQ(parseTokenCounts("1:16:x2"), (Counts{1, 2, 4, 8, 16}));
  EXPECT_EQ(parseTokenCounts("1:16"), (Counts{1, 2, 4, 8, 16}));
  EXPECT_EQ(parseTokenCounts("3:100:x4"), (Counts{3, 12, 48}));
  EXPECT_EQ(parseTokenCounts("0:10:+5"), (Counts{0, 5, 10}));
  EXPECT_EQ(parseTokenCounts("7:7:+5"), Counts{7});
  EXPECT_EQ(parseTokenCounts("1048576:1048576:x1048576"), Counts{1048576});
}

std::string refusalOf(const std::string& word) {
  try {
    parseTokenCounts(word);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "taken";
}

TEST(PerfTokens, RefusalsNameTheWordAndWhatWasExpected) {
  EXPECT_EQ(refusalOf("12a"), "12a: expected a number, BEGIN:END:xFACTOR or BEGIN:END:+STEP");
  EXPECT_EQ(refusalOf(""), ": expected a number, BEGIN:END:xFACTOR or BEGIN:END:+STEP");
  EXPECT_EQ(refusalOf("1:8:2"), "1:8:2: expected xFACTOR or +STEP behind the second colon");
  EXPECT_EQ(refusalOf("1:8:x2:x3"), "1:8:x2:x3: expected BEGIN:END:xFACTOR or BEGIN:END:+STEP");
  EXPECT_EQ(refusalOf("1:8:"), "1:8:: expected BEGIN:END:xFACTOR or BEGIN:END:+STEP");
  EXPECT_EQ(refusalOf("0:8:x2"), "0:8:x2: 0 times a factor stays 0: begin at 1, or give +STEP");
  EXPECT_EQ(refusalOf("1:8:x1"), "1:8:x1: a factor is at least 2");
  EXPECT_EQ(refusalOf("1:8:+0"), "1:8:+0: a step is at least 1");
  EXPECT_EQ(refusalOf("9:8:x2"), "9:8:x2: begins at 9, above its end 8");
  EXPECT_EQ(refusalOf("2000000"), "2000000: 2000000 is not from 0 to 1048576");
  EXPECT_EQ(refusalOf("-1"), "-1: -1 is not from 0 to 1048576");
}

}  // namespace
}  // namespace moe::test
