// docs/reference/tuning.md shows the table of environment variables between two markers. It must equal the table in the
// code. MOECOMM_UPDATE_DOCS=1 in the environment of this test rewrites it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "comm/config/config_table.h"

namespace moe::test {
namespace {

const std::string kPath = MOECOMM_SOURCE_DIR "/docs/reference/tuning.md";
const std::string kBegin = "<!-- variables: begin; written by the unit tests with MOECOMM_UPDATE_DOCS=1 -->\n";
const std::string kEnd = "<!-- variables: end -->\n";

std::string readText(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(TuningDocument, ShowsTheVariablesAsTheyAre) {
  const std::string text = readText(kPath);
  const std::size_t begin = text.find(kBegin), end = text.find(kEnd);
  ASSERT_NE(begin, std::string::npos) << kPath << " lacks the line " << kBegin;
  ASSERT_NE(end, std::string::npos) << kPath << " lacks the line " << kEnd;
  const std::size_t from = begin + kBegin.size();
  const std::string expected = fmt::format("\n{}\n", settingsAsMarkdown());
  if (std::getenv("MOECOMM_UPDATE_DOCS") != nullptr) {
    std::ofstream(kPath) << text.substr(0, from) << expected << text.substr(end);
    return;
  }
  EXPECT_EQ(text.substr(from, end - from), expected)
      << "Run: MOECOMM_UPDATE_DOCS=1 ctest --preset dev -R TuningDocument";
}

TEST(TuningDocument, DoesNotBreakItsTable) {
  std::istringstream lines(settingsAsMarkdown());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 6) << line;
  }
  EXPECT_EQ(static_cast<std::size_t>(count), settings().size() + 2);
}

}  // namespace
}  // namespace moe::test
