// moe_perf --compare: comparisons, refusals, and limits that are exceeded.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "perf/moe_perf/compare.h"
#include "perf/moe_perf/report.h"

namespace moe::test {
namespace {

using namespace moe::perf;

// Cases as --json writes them, with pairs of `us` and steps of twice that.
Cases storedPairs(const std::vector<int>& tokens, double us, Options options = {}) {
  std::vector<CaseResult> results;
  for (const int count : tokens) {
    CaseResult result;
    result.tokens = count;
    result.dispatch = result.combine = {us / 2};
    result.pair = {us};
    result.step = {2 * us};
    result.machine = {"host", "host", 2};
    results.push_back(result);
  }
  Provenance provenance{"0.1.0", "1a2b", "node1", "2026-11-25T01:00:00Z", "a CPU", ""};
  return perf::casesOf(provenance, options, results);
}

bool comparisonSays(const ReportComparison& comparison, const std::string& text) {
  return comparison.text.find(text) != std::string::npos;
}

TEST(PerfCompare, PutsOldAndNewMediansSideBySide) {
  const ReportComparison comparison = compare(storedPairs({8, 128}, 100), storedPairs({8, 128}, 110), {"old.json"});
  EXPECT_TRUE(comparisonSays(comparison, "compared with old.json of 2026-11-25T01:00:00Z, commit 1a2b\n"));
  EXPECT_TRUE(comparisonSays(comparison, "    128     100.0     110.0   1.100      200.0     220.0   1.100\n"))
      << comparison.text;
  EXPECT_FALSE(comparisonSays(comparison, "dispatch"));
  EXPECT_FALSE(comparisonSays(comparison, "other settings"));
  EXPECT_FALSE(comparisonSays(comparison, "another machine"));
  EXPECT_FALSE(comparison.exceeded);
  EXPECT_TRUE(
      comparisonSays(compare(storedPairs({8}, 100), storedPairs({8}, 110), {"old.json", true}), "dispatch, median us"));
}

TEST(PerfCompare, RefusesOtherWorkAndNamesTheFields) {
  Options narrow;
  narrow.hidden = 1024;
  narrow.topk = 4;
  const ReportComparison comparison =
      compare(storedPairs({8, 128}, 100, narrow), storedPairs({8, 128}, 100), {"old.json"});
  EXPECT_TRUE(comparisonSays(
      comparison, "not compared: 8, 128 tokens: not the same work: hidden was 1024 and is 7168, topk was 4 and is 8\n"))
      << comparison.text;
  EXPECT_FALSE(comparisonSays(comparison, "ratio"));
  const ReportComparison missing = compare(storedPairs({8}, 100), storedPairs({16}, 100), {"old.json"});
  EXPECT_TRUE(comparisonSays(missing, "not compared: 16 tokens: old.json has no case with this number of tokens\n"))
      << missing.text;
}

TEST(PerfCompare, TakesTheLastCaseThatIsTheSameWork) {
  Cases old = storedPairs({8}, 100);
  Options narrow;
  narrow.hidden = 1024;
  old.push_back(storedPairs({8}, 50)[0]);
  old.push_back(storedPairs({8}, 10, narrow)[0]);
  EXPECT_TRUE(comparisonSays(compare(old, storedPairs({8}, 100), {"old.json"}), "      8      50.0     100.0   2.000"));
}

TEST(PerfCompare, SaysOnceWhichSettingsAndMachinesDiffer) {
  Cases old = storedPairs({8, 128}, 100);
  for (Cases& one : old) {
    one["host"] = "node2";
    one["gpu"] = "NVIDIA H200";
    one["iters"] = 5;
  }
  const std::string text = compare(old, storedPairs({8, 128}, 100), {"old.json"}).text;
  const std::string machine = "another machine: host was node2 and is node1, gpu was NVIDIA H200 and is none\n";
  EXPECT_NE(text.find(machine), std::string::npos) << text;
  EXPECT_EQ(text.find(machine), text.rfind(machine));
  EXPECT_NE(text.find("other settings: iters was 5 and is 20\n"), std::string::npos) << text;
}

TEST(PerfCompare, MarksDifferencesWhoseTimesOverlap) {
  Cases old = storedPairs({8}, 100), now = storedPairs({8}, 110);
  EXPECT_FALSE(comparisonSays(compare(old, now, {"old.json"}), "~"));
  old[0]["pair_us"]["p90"] = 109;
  now[0]["pair_us"]["p10"] = 109;
  const ReportComparison comparison = compare(old, now, {"old.json"});
  EXPECT_TRUE(comparisonSays(comparison, "      8     100.0     110.0   1.100~     200.0     220.0   1.100\n"))
      << comparison.text;
  EXPECT_TRUE(comparisonSays(comparison, "~: the middle 80 % of the old and of the new times overlap\n"));
  EXPECT_TRUE(comparisonSays(compare(now, old, {"now.json"}), "0.909~"));
  now[0]["pair_us"]["p10"] = 109.5;
  EXPECT_FALSE(comparisonSays(compare(old, now, {"old.json"}), "~"));
  now[0]["pair_us"].erase("p10");
  EXPECT_FALSE(comparisonSays(compare(old, now, {"old.json"}), "~")) << "an older report does not know";
}

TEST(PerfCompare, ComparesAcrossOneField) {
  Options ll;
  ll.mode = moeModeLl;
  ll.sms = 8;
  Cases old = storedPairs({8}, 100), now = storedPairs({8}, 50, ll);
  old[0]["mode"] = "ht";
  ComparisonSettings settings{"old.json"};
  EXPECT_TRUE(comparisonSays(compare(old, now, settings), "not the same work: mode was ht and is ll"));
  settings.across = Across::mode;
  old.push_back(storedPairs({8}, 40, ll)[0]);
  const ReportComparison comparison = compare(old, now, settings);
  EXPECT_TRUE(
      comparisonSays(comparison, "      8     100.0      50.0   0.500      200.0     100.0   0.500  ht -> ll\n"))
      << comparison.text;
  EXPECT_TRUE(comparisonSays(comparison, "other settings: sms was 0 and is 8\n"));
  EXPECT_TRUE(comparisonSays(comparison, "   ratio  mode\n")) << comparison.text;
  settings.across = Across::sms;
  old.erase(1);
  old[0]["mode"] = "ll";
  const ReportComparison sms = compare(old, now, settings);
  EXPECT_TRUE(comparisonSays(sms, "  0 -> 8\n")) << sms.text;
  EXPECT_FALSE(comparisonSays(sms, "other settings"));
}

TEST(PerfCompare, AcrossALayoutItsUsualWeightsMayDiffer) {
  Options flat, major;
  major.layout = moeLayoutExpertMajor;
  ComparisonSettings settings{"old.json"};
  settings.across = Across::layout;
  EXPECT_TRUE(comparisonSays(compare(storedPairs({8}, 100, flat), storedPairs({8}, 90, major), settings),
                             "flat -> expert-major\n"));
  major.hidden = 1024;
  EXPECT_TRUE(comparisonSays(compare(storedPairs({8}, 100, flat), storedPairs({8}, 90, major), settings),
                             "not the same work: hidden was 7168 and is 1024\n"));
}

TEST(PerfCompare, FailsOnlyAboveALimit) {
  const Cases old = storedPairs({8}, 100), now = storedPairs({8}, 106);
  EXPECT_FALSE(compare(old, now, {"old.json"}).exceeded);
  EXPECT_FALSE(compare(old, now, {"old.json", false, 7}).exceeded);
  const ReportComparison comparison = compare(old, now, {"old.json", false, 5});
  EXPECT_TRUE(comparison.exceeded);
  EXPECT_TRUE(comparisonSays(comparison, "SLOWER: 8 tokens: the pair takes 6.0 % longer, of at most 5 %\n"))
      << comparison.text;
  EXPECT_TRUE(comparisonSays(comparison, "SLOWER: 8 tokens: the step takes 6.0 % longer"));
  EXPECT_FALSE(compare(now, old, {"old.json", false, 0}).exceeded) << "faster is not slower";
  EXPECT_TRUE(compare(old, storedPairs({16}, 100), {"old.json", false, 5}).exceeded)
      << "what is not there is not as fast";
  EXPECT_FALSE(compare(old, storedPairs({16}, 100), {"old.json"}).exceeded);
}

TEST(PerfCompare, FitsInAHundredColumns) {
  Cases old = storedPairs({1 << 20}, 999999.9);
  for (Cases& one : old) one["cpu"] = "a CPU with a name that is long, as the names of CPUs are, and longer still";
  const ReportComparison comparison =
      compare(old, storedPairs({1 << 20, 8}, 12345678.9), {"a/folder/with/a/long/name/and/a/report.json", false, 1.5});
  std::istringstream lines(comparison.text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100U) << line;
}

std::string refusalToRead(const std::string& content) {
  const std::string path = fmt::format("{}/{}-report.json", testing::TempDir(), ::getpid());
  std::ofstream(path) << content;
  try {
    readCases("--compare", path);
  } catch (const std::runtime_error& error) {
    std::filesystem::remove(path);
    const std::string sentence = error.what();
    return sentence.substr(std::min(sentence.find("report.json"), sentence.size()));
  }
  std::filesystem::remove(path);
  return "taken";
}

TEST(PerfCompare, ReadsOnlyReportsOfCases) {
  EXPECT_EQ(refusalToRead(storedPairs({8}, 100).dump()), "taken");
  EXPECT_EQ(refusalToRead("{"), "report.json is not a report of moe_perf --json");
  EXPECT_EQ(refusalToRead("[]"), "report.json is not a report of moe_perf --json");
  const std::string start = "report.json is not a report of cases of moe_perf --json: case 1: ";
  EXPECT_EQ(refusalToRead("[5]"), start + "it is not an object");
  EXPECT_EQ(refusalToRead(R"([{"tokens": "8"}])"), start + "tokens is not a whole number");
  Cases untimed = storedPairs({8}, 100);
  untimed[0]["step_us"]["median"] = 0;
  EXPECT_EQ(refusalToRead(untimed.dump()), start + "step_us.median is not a time above 0");
  Cases soaked = Cases::parse(jsonText(Provenance{}, Options{}, SoakResult{}));
  EXPECT_EQ(refusalToRead(soaked.dump()), start + "dispatch_us.min is not a time above 0");
}

}  // namespace
}  // namespace moe::test
