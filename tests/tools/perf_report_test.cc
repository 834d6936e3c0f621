// The values that moe_perf reports beside its times. Each result must be compared with the right ceiling.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "perf/moe_perf/host_load.h"
#include "perf/moe_perf/report.h"

namespace moe::test {
namespace {

using namespace moe::perf;

CaseResult resultWithCeilings() {
  CaseResult result;
  result.dispatch = {500, 400, 600};
  result.combine = {800};
  result.pair = {1000};
  result.step = {1250};
  result.ceilings = Ceilings{};
  result.ceilings->push = {"push: this", {300, 400, 350}};
  result.ceilings->pushBack = {"push back: that", {500}};
  result.ceilings->pull = {"pull: other", {400}};
  result.ceilings->atChoice.push = {"push: with few", {450}};
  result.ceilings->atChoice.pushBack = {"push back: with few", {600}};
  result.ceilings->atChoice.pull = {"pull: with few", {640}};
  result.multiprocessors = {33, 24};
  return result;
}

TEST(PerfReport, RelatesTimesToTheirCeilings) {
  const CeilingShares shares = ceilingShares(resultWithCeilings());
  EXPECT_DOUBLE_EQ(shares.dispatch, 0.7);
  EXPECT_DOUBLE_EQ(shares.combine, 0.5);  // relative to the pull, which is faster
  EXPECT_DOUBLE_EQ(shares.pair, 0.75);
  EXPECT_DOUBLE_EQ(shares.step, 0.6);
  EXPECT_EQ(ceilingShares(CaseResult{}).dispatch, 0);
  const CaseResult result = resultWithCeilings();
  const CeilingShares atChoice = ceilingShares(result, result.ceilings->atChoice);
  EXPECT_DOUBLE_EQ(atChoice.dispatch, 0.9);
  EXPECT_DOUBLE_EQ(atChoice.combine, 0.75);
  EXPECT_DOUBLE_EQ(atChoice.pair, 1.05);
  EXPECT_DOUBLE_EQ(atChoice.step, 0.84);
}

TEST(PerfReport, WritesCeilingsWhereTheyWereMeasured) {
  const auto cases = nlohmann::json::parse(jsonText({}, Options{}, {resultWithCeilings(), CaseResult{}}));
  EXPECT_EQ(cases[0]["dispatch_of_ceiling"], 0.7);
  EXPECT_EQ(cases[0]["step_of_ceiling"], 0.6);
  EXPECT_EQ(cases[0]["combine_ceiling"]["variant"], "pull: other");
  EXPECT_EQ(cases[0]["dispatch_ceiling"]["us"]["min"], 300);
  EXPECT_EQ(cases[0]["dispatch_us"]["max"], 600);
  EXPECT_EQ(cases[0]["dispatch_sms"], 33);
  EXPECT_EQ(cases[0]["combine_sms"], 24);
  EXPECT_EQ(cases[0]["combine_of_ceiling_at_sms"], 0.75);
  EXPECT_EQ(cases[0]["combine_ceiling_at_sms"]["variant"], "push back: with few");
  EXPECT_FALSE(cases[1].contains("dispatch_of_ceiling"));
}

TEST(PerfReport, ShowsAWholeStepBesideThePair) {
  CaseResult result = resultWithCeilings();
  result.step = {1030, 1020, 1010};
  int tokens = 0;
  double dispatch = 0, combine = 0, pair = 0, step = 0;
  std::istringstream(caseText(Options{}, result)) >> tokens >> dispatch >> combine >> pair >> step;
  EXPECT_EQ(dispatch, 500);
  EXPECT_EQ(combine, 800);
  EXPECT_EQ(pair, 1000);
  EXPECT_EQ(step, 1020);
  Options verbose;
  verbose.verbose = true;
  EXPECT_NE(caseText(verbose, result).find("  1010.0   1020.0   1030.0 "), std::string::npos);
  const auto cases = nlohmann::json::parse(jsonText({}, Options{}, {result}));
  EXPECT_EQ(cases[0]["step_us"]["min"], 1010);
  EXPECT_EQ(cases[0]["step_us"]["median"], 1020);
  EXPECT_FALSE(cases[0].contains("route_us"));
}

std::size_t longestLine(const std::string& text) {
  std::size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(PerfReport, FitsInATerminal) {
  Options options;
  options.chain = options.timed = 1000;
  options.graph = options.sendOnly = options.interleave = true;
  options.cast = Cast::fp8Ue8m0;
  options.routing = Routing::groupLimited;
  CaseResult result = resultWithCeilings();
  result.tokens = 1 << 20;
  result.dispatch = result.combine = result.pair = result.step = {999999.9};
  result.remoteBytes = result.combineRemoteBytes = 9e11;
  result.machine = {"cuda", "NVIDIA H200 NVL with a long name that some GPUs have", 1024, 128, "ibgda"};
  result.machine.hostLoad = {1024, 256};
  result.machine.backend = "host";
  EXPECT_LE(longestLine(headerText(options, result)), 79U);
  result.machine.backend = "cuda";
  options.perRank = true;
  result.ranks.dispatch = result.ranks.combine = result.ranks.pair = result.ranks.step =
      std::vector<double>(1024, 999999.9);
  CaseResult noCeilings = result;
  noCeilings.ceilings.reset();
  EXPECT_LE(longestLine(caseText(options, noCeilings)), 79U);
  result.choseMultiprocessors = true;
  result.ceilings->pullSums = {"pull with sums: 16-byte accesses, 132 SMs x 16 warps", {1234.56}};
  EXPECT_LE(longestLine(caseText(options, result)), 100U);
  result.verdict.wrongPayloads = result.verdict.wrongMetadata = result.verdict.wrongCombines = 1234567890;
  EXPECT_LE(longestLine(caseText(options, result)), 100U);
  EXPECT_NE(caseText(options, result).find("WRONG: 1234567890 payloads"), std::string::npos);
  SoakResult soak;
  soak.machine = result.machine;
  soak.iterations = soak.llIterations = soak.shapes = 1000000000;
  soak.verdict = result.verdict;
  soak.wrongShapes = {
      "1000: ll expert-major-padded fp16 cast fp8-ue8m0 token-contiguous, hidden 16384, top-32 of 1024 "
      "experts, routing group-limited (4 of 8 groups), weights applied, window 1, tokens 1,2,3 / 4,5,6 of 8"};
  EXPECT_LE(longestLine(soakText(soak)), 79U);
  TransportResult transport{1024, 1, "verbs", {{1000, 1023, 50, 0, {12345.6}, {}}}};
  transport.pairs[0].speeds.assign(7, {64, 99999999});
  EXPECT_LE(longestLine(transportText(transport)), 100U);
}

TEST(PerfReport, ShowsHowFarPairsLieApart) {
  CaseResult result = resultWithCeilings();
  result.ceilings.reset();
  result.pair.assign(80, 1000);
  for (const double us : {900, 1150}) result.pair.insert(result.pair.end(), 10, us);
  EXPECT_NE(caseText(Options{}, result).find(" 10% "), std::string::npos) << caseText(Options{}, result);
  result.pair.push_back(1150);
  EXPECT_NE(caseText(Options{}, result).find(" 15% "), std::string::npos) << caseText(Options{}, result);
  result.pair.assign(10, 1);
  result.pair.insert(result.pair.end(), 9, 1e6);
  EXPECT_NE(caseText(Options{}, result).find(" >999% "), std::string::npos) << caseText(Options{}, result);
  const auto cases = nlohmann::json::parse(jsonText({}, Options{}, {resultWithCeilings()}));
  EXPECT_EQ(cases[0]["dispatch_us"]["p10"], 400);
  EXPECT_EQ(cases[0]["dispatch_us"]["p90"], 600);
}

TEST(PerfReport, ShowsTheMediansOfEveryRankIfAsked) {
  CaseResult result = resultWithCeilings();
  result.ranks = {{1, 2.5}, {3, 4}, {5, 6}, {7, 123456.7}};
  EXPECT_EQ(caseText(Options{}, result).find("rank 0"), std::string::npos);
  EXPECT_FALSE(nlohmann::json::parse(jsonText({}, Options{}, {result}))[0].contains("rank_medians_us"));
  Options options;
  options.perRank = true;
  const std::string text = caseText(options, result);
  EXPECT_NE(text.find("     rank 0: dispatch      1.0 combine     3.0 pair     5.0 step     7.0\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("     rank 1: dispatch      2.5 combine     4.0 pair     6.0 step  123457\n"), std::string::npos)
      << text;
  EXPECT_EQ(nlohmann::json::parse(jsonText({}, options, {result}))[0]["rank_medians_us"]["dispatch"][1], 2.5);
}

TEST(PerfReport, SaysWhenRanksShareProcessors) {
  CaseResult result;
  result.machine = {"host", "host", 4};
  const auto says = [&](const std::string& text) {
    return headerText(Options{}, result).find(text) != std::string::npos;
  };
  EXPECT_FALSE(says("share")) << "not known";
  result.machine.hostLoad = {4, 4};
  EXPECT_FALSE(says("share"));
  result.machine.hostLoad = {4, 2};
  EXPECT_TRUE(says("NOTE: 4 ranks of a host share 2 processors: times include waits for a processor\n"));
  result.machine.hostLoad = {4, 1};
  EXPECT_TRUE(says("share 1 processor:"));
  result.machine.backend = "cuda";
  EXPECT_FALSE(says("share")) << "GPUs do the work";
}

TEST(PerfReport, FindsTheHostWithTheFewestProcessorsPerRank) {
  const std::vector<std::uint64_t> wide = {1, 0xff, 1}, left = {2, 0b01}, right = {2, 0b11};
  HostLoad load = busiestHost({wide, left, right, right});
  EXPECT_EQ(load.ranks, 3);
  EXPECT_EQ(load.processors, 2);
  load = busiestHost({wide, left, right});
  EXPECT_EQ(load.ranks, 2);
  EXPECT_EQ(load.processors, 2);
  EXPECT_EQ(busiestHost({wide, {3}}).processors, 0) << "a rank does not know its processors";
  const HostLoad own = busiestHost({ownShare(), ownShare()});
  EXPECT_EQ(own.ranks, 2);
  EXPECT_GE(own.processors, 1);
}

TEST(PerfReport, SaysWithWhatItWasMade) {
  const Provenance provenance = findProvenance();
  EXPECT_EQ(provenance.version, "0.1.0");
  EXPECT_FALSE(provenance.host.empty());
  EXPECT_EQ(provenance.date.size(), std::string("2026-11-23T13:00:00Z").size());
  CaseResult result = resultWithCeilings();
  result.machine = {"cuda", "NVIDIA H200", 4};
  const Provenance given{"0.1.0", "1a2b", "node, the \"first\"", "2026-11-23T13:00:00Z", "a CPU", "580.95.05"};
  const auto cases = nlohmann::json::parse(jsonText(given, Options{}, {result}));
  EXPECT_EQ(cases[0]["version"], "0.1.0");
  EXPECT_EQ(cases[0]["commit"], "1a2b");
  EXPECT_EQ(cases[0]["host"], "node, the \"first\"");
  EXPECT_EQ(cases[0]["date"], "2026-11-23T13:00:00Z");
  EXPECT_EQ(cases[0]["cpu"], "a CPU");
  EXPECT_EQ(cases[0]["gpu"], "NVIDIA H200");
  EXPECT_EQ(cases[0]["driver"], "580.95.05");
  Provenance strange = given;
  strange.host = "node \xff";
  EXPECT_EQ(nlohmann::json::parse(jsonText(strange, Options{}, {result}))[0]["host"], "node \xef\xbf\xbd");
  const std::string csv = csvText(given, Options{}, {result, result});
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_EQ(csv.rfind("backend,mode,layout,", 0), 0U);
  EXPECT_NE(csv.find(",pair_us.median,"), std::string::npos);
  EXPECT_NE(csv.find("\ncuda,auto,flat,"), std::string::npos);
  EXPECT_NE(csv.find(",\"node, the \"\"first\"\"\","), std::string::npos);
}

}  // namespace
}  // namespace moe::test
