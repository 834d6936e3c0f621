// The charts of moe_perf --plot, and the axes that they share with moe_model.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "perf/moe_perf/plot.h"
#include "perf/moe_perf/report.h"
#include "perf/plot/chart.h"

namespace moe::test {
namespace {

using namespace moe::perf;
using Ticks = std::vector<double>;

CaseResult timedCase(int tokens) {
  CaseResult result;
  result.tokens = tokens;
  result.dispatch = {10, 20, 40};
  result.combine = {20, 40, 80};
  result.pair = {40, 50, 60};
  result.step = {50, 100, 1000};
  result.remoteBytes = result.combineRemoteBytes = 1e6;
  result.machine = {"host", "a <device> & more", 2};
  return result;
}

Cases storedSweep(const std::string& host, const std::vector<int>& tokens, bool ceilings = false) {
  std::vector<CaseResult> results;
  for (const int count : tokens) {
    results.push_back(timedCase(count));
    if (!ceilings) continue;
    results.back().ceilings = Ceilings{};
    results.back().ceilings->push.times = {10};
    results.back().ceilings->pushBack.times = results.back().ceilings->pull.times = {20};
  }
  Provenance provenance;
  provenance.host = host;
  return casesOf(provenance, Options{}, results);
}

int occurrences(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(PerfPlot, DrawsTimesWithBandsAndRates) {
  const std::string svg = plotText(storedSweep("node", {1, 2, 4}));
  EXPECT_EQ(occurrences(svg, "<polygon"), 4) << "a band for each operation";
  EXPECT_EQ(occurrences(svg, "<circle"), 18) << "three points of four times and two rates";
  EXPECT_EQ(occurrences(svg, "stroke-dasharray=\"5 3\""), 2 * 3) << "combine twice and step, each with a legend";
  EXPECT_EQ(occurrences(svg, "stroke-dasharray=\"1.5"), 0) << "no ceilings were measured";
  EXPECT_EQ(occurrences(svg, "fill=\"#ffffff\" stroke"), 9) << "the dots of combine and step are hollow";
  EXPECT_EQ(occurrences(svg, ">dispatch</text>"), 2);
  EXPECT_EQ(occurrences(svg, ">step</text>"), 1);
  EXPECT_NE(svg.find("device a &lt;device> &amp; more"), std::string::npos);
  // The left panel reaches from x 55 to 355 and from y 40 (100 us) to 290 (10 us). 20 us is the median of dispatch.
  EXPECT_NE(svg.find(R"(points="55.0,214.7 205.0,214.7 355.0,214.7" fill="none" stroke="#1f5fa8")"), std::string::npos)
      << svg;
}

// Ten times: the band leaves out the fastest and the slowest.
TEST(PerfPlot, DrawsBandsFromP10ToP90) {
  CaseResult result = timedCase(1);
  result.dispatch = {1, 20, 20, 20, 20, 20, 20, 20, 40, 1000};
  result.dispatch.insert(result.dispatch.end(), result.dispatch.begin(), result.dispatch.end());
  result.step = {50, 100};
  const Cases cases = casesOf(Provenance{}, Options{}, {result});
  EXPECT_EQ(cases[0]["dispatch_us"]["p10"], 1);
  EXPECT_EQ(cases[0]["dispatch_us"]["p90"], 40);
  CaseResult other = result;
  other.tokens = 2;
  const std::string svg = plotText(casesOf(Provenance{}, Options{}, {result, other}));
  // The left panel reaches from 1 us to 100 us: the longest time is not on it.
  EXPECT_NE(svg.find(">100</text>"), std::string::npos);
  EXPECT_EQ(svg.find(">1000</text>"), std::string::npos) << svg;
}

TEST(PerfPlot, DrawsSweepsInColoursAndOperationsInStrokes) {
  Cases cases = storedSweep("north", {1, 2});
  for (const Cases& one : storedSweep("south", {1, 2})) cases.push_back(one);
  const std::string svg = plotText(cases);
  for (const char* color : {"#1f5fa8", "#b5371f"}) {
    const std::string line = std::string("fill=\"none\" stroke=\"") + color + "\" stroke-width=\"1.8\"";
    EXPECT_EQ(occurrences(svg, line + "/>"), 3) << color << ": dispatch, pair, and the rate of dispatch";
    EXPECT_EQ(occurrences(svg, line + " stroke-dasharray=\"5 3\""), 3) << color << ": combine, step, and a rate";
  }
}

TEST(PerfPlot, DrawsCeilingsDotted) {
  const std::string svg = plotText(storedSweep("node", {1, 2, 4}, true));
  EXPECT_EQ(occurrences(svg, "stroke-dasharray=\"1.5 2.5\""), 2 * 3)
      << "of dispatch, of pair, and of the rate of dispatch, each with a legend";
  EXPECT_EQ(occurrences(svg, "stroke-dasharray=\"6 2.5 1.5 2.5\""), 2 * 2) << "of combine and its rate";
  EXPECT_EQ(occurrences(svg, ">pair and step, ceiling</text>"), 1);
}

TEST(PerfPlot, NamesSweepsByWhatDiffers) {
  Cases cases = storedSweep("north", {1, 2});
  for (const Cases& one : storedSweep("south", {1, 2})) cases.push_back(one);
  const std::string svg = plotText(cases);
  EXPECT_EQ(occurrences(svg, ">host north: pair</text>"), 1);
  EXPECT_EQ(occurrences(svg, ">host south: dispatch</text>"), 2);
  EXPECT_EQ(svg.find("host north, "), std::string::npos) << "a caption has only what is common";
}

TEST(PerfPlot, NamesSweepsByLettersWhereLegendsAreTooNarrow) {
  const std::string longName = "a-node-with-a-name-that-is-rather-long";
  Cases cases = storedSweep("north", {1, 2});
  for (const Cases& one : storedSweep(longName, {1, 2})) cases.push_back(one);
  const std::string svg = plotText(cases);
  EXPECT_EQ(occurrences(svg, ">B: pair</text>"), 1);
  EXPECT_EQ(occurrences(svg, ">B: host " + longName + "</text>"), 1);
}

TEST(PerfPlot, DrawsOnePointAndLeavesOutCasesWithoutTokens) {
  const std::string svg = plotText(storedSweep("node", {0, 16}));
  EXPECT_EQ(occurrences(svg, "<circle"), 6);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

TEST(PerfPlot, OlderReportsWithoutPercentilesHaveNoBands) {
  Cases cases = storedSweep("node", {1, 2});
  EXPECT_EQ(occurrences(plotText(cases), "<polygon"), 4);
  for (Cases& one : cases) {
    for (const char* times : {"dispatch_us", "combine_us", "pair_us", "step_us"}) one[times].erase("p10");
  }
  const std::string svg = plotText(cases);
  EXPECT_EQ(occurrences(svg, "<polygon"), 0);
  EXPECT_EQ(occurrences(svg, "<circle"), 12);
}

TEST(PerfPlot, RefusesWhatCannotBeRead) {
  EXPECT_THROW(plotText(storedSweep("node", {0})), std::runtime_error);
  Cases cases = Cases::array();
  for (const char* host : {"a", "b", "c", "d", "e"}) cases.push_back(storedSweep(host, {8})[0]);
  EXPECT_THROW(plotText(cases), std::runtime_error);
  cases.erase(4);
  EXPECT_EQ(occurrences(plotText(cases), ">host d: step</text>"), 1);
}

TEST(Chart, AxesHoldTheirValues) {
  EXPECT_EQ(plot::powersOfTwo(1, 8, 9), (Ticks{1, 2, 4, 8}));
  EXPECT_EQ(plot::powersOfTwo(3, 100, 9), (Ticks{2, 4, 8, 16, 32, 64, 128}));
  EXPECT_EQ(plot::powersOfTwo(1, 4096, 5), (Ticks{1, 8, 64, 512, 4096}));
  EXPECT_EQ(plot::powersOfTwo(16, 16, 9), (Ticks{16, 32}));
  EXPECT_EQ(plot::decades(3, 40, 9), (Ticks{2, 5, 10, 20, 50}));
  EXPECT_EQ(plot::decades(10, 10, 9), (Ticks{10, 20}));
  EXPECT_EQ(plot::decades(1, 2e4, 5), (Ticks{1, 20, 500, 10000, 200000}));
  EXPECT_EQ(plot::roundSteps(1), (Ticks{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(plot::roundSteps(430), (Ticks{0, 100, 200, 300, 400, 500}));
}

}  // namespace
}  // namespace moe::test
