// The ranges of token counts that moe_perf understands, and the options that go together.
#include <gtest/gtest.h>

#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "perf/moe_perf/option_rules.h"
#include "perf/moe_perf/options.h"
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
  EXPECT_EQ(refusalOf("1:8:x1"), "1:8:x1: a factor must be at least 2");
  EXPECT_EQ(refusalOf("1:8:+0"), "1:8:+0: a step must be at least 1");
  EXPECT_EQ(refusalOf("9:8:x2"), "9:8:x2: begins at 9, above its end 8");
  EXPECT_EQ(refusalOf("2000000"), "2000000: 2000000 is not from 0 to 1048576");
  EXPECT_EQ(refusalOf("-1"), "-1: -1 is not from 0 to 1048576");
}

// The first line that moe_perf writes to standard error for a command line. Empty if it accepts the command line.
std::string firstLineOf(const std::string& arguments) {
  std::vector<std::string> words = {"moe_perf"};
  std::istringstream text(arguments);
  for (std::string word; text >> word;) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  int status = -1;
  testing::internal::CaptureStderr();
  const std::optional<perf::Options> options = perf::parseOptions(static_cast<int>(argv.size()), argv.data(), &status);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(status, options ? -1 : 2) << arguments;
  return said.substr(0, said.find('\n'));
}

TEST(PerfOptions, EveryRuleIsRefusedWithItsSentence) {
  const std::regex placeholder("\\{[a-z]+\\}");
  for (const perf::OptionRule& rule : perf::optionRules()) {
    const std::string sentence = std::regex_replace(rule.sentence, placeholder, "[0-9]+");
    const std::string said = firstLineOf(rule.example);
    EXPECT_TRUE(std::regex_match(said, std::regex("moe_perf: " + sentence))) << rule.example << " gives: " << said;
  }
  EXPECT_EQ(firstLineOf("--from x --plot y --hidden 64"),
            "moe_perf: --from runs nothing: it cannot be combined with --hidden");
  EXPECT_EQ(firstLineOf("--hidden 7"), "moe_perf: --hidden 7: a row of 14 bytes is not a multiple of 16");
}

TEST(PerfOptions, NoRuleIsInTheWayOfWhatGoesTogether) {
  for (const char* arguments :
       {"", "--cast fp8 --mode ll --layout rank-major", "--scales token-contiguous --cast fp8 --mode ll --window 0",
        "--scales 128x4 --cast nvfp4 --layout expert-major", "--topk 8 --experts 8",
        "--routing group-limited --experts 8", "--weights apply --layout expert-major",
        "--ceiling --ranks-as-threads 2 --graph", "--soak 5 --hidden 16 --graph --mode auto",
        "--transport-test --backend host --plant-wrong --json x", "--from x,y --plot z",
        "--from x --compare y --compare-limit 0 --verbose --across layout", "--per-rank --verbose",
        "--tokens 0,1 --plot x --compare y"}) {
    EXPECT_EQ(firstLineOf(arguments), "");
  }
}

}  // namespace
}  // namespace moe::test
