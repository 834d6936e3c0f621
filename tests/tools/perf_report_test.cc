// What moe_perf reports beside its times: results are related to the right ones.
#include <gtest/gtest.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "../../perf/report.h"

namespace moe::test {
namespace {

using namespace moe::perf;

CaseResult resultWithCeilings() {
  CaseResult result;
  result.dispatch = {500, 400, 600};
  result.combine = {800};
  result.pair = {1000};
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
  EXPECT_DOUBLE_EQ(shares.combine, 0.5);  // of the pull, which is faster
  EXPECT_DOUBLE_EQ(shares.pair, 0.75);
  EXPECT_EQ(ceilingShares(CaseResult{}).dispatch, 0);
  const CaseResult result = resultWithCeilings();
  const CeilingShares atChoice = ceilingShares(result, result.ceilings->atChoice);
  EXPECT_DOUBLE_EQ(atChoice.dispatch, 0.9);
  EXPECT_DOUBLE_EQ(atChoice.combine, 0.75);
  EXPECT_DOUBLE_EQ(atChoice.pair, 1.05);
}

TEST(PerfReport, WritesCeilingsWhereTheyWereMeasured) {
  const std::string file = testing::TempDir() + "/ceilings.json";
  writeJson(file, Options{}, {resultWithCeilings(), CaseResult{}});
  const auto cases = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(cases[0]["dispatch_of_ceiling"], 0.7);
  EXPECT_EQ(cases[0]["combine_ceiling"]["variant"], "pull: other");
  EXPECT_EQ(cases[0]["dispatch_ceiling"]["us"]["min"], 300);
  EXPECT_EQ(cases[0]["dispatch_sms"], 33);
  EXPECT_EQ(cases[0]["combine_sms"], 24);
  EXPECT_EQ(cases[0]["combine_of_ceiling_at_sms"], 0.75);
  EXPECT_EQ(cases[0]["combine_ceiling_at_sms"]["variant"], "push back: with few");
  EXPECT_FALSE(cases[1].contains("dispatch_of_ceiling"));
}

TEST(PerfReport, RelatesTheLibraryToItsTwin) {
  CaseResult result;
  EXPECT_EQ(dispatchToTwin(result), 0);
  result.twin = TwinTimes{{510, 505, 700}, {500, 490, 600}};
  EXPECT_DOUBLE_EQ(dispatchToTwin(result), 1.02);
  const std::string file = testing::TempDir() + "/twin.json";
  writeJson(file, Options{}, {result, CaseResult{}});
  const auto cases = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(cases[0]["twin_us"]["median"], 500);
  EXPECT_EQ(cases[0]["library_us"]["median"], 510);
  EXPECT_EQ(cases[0]["library_to_twin"], 1.02);
  EXPECT_FALSE(cases[1].contains("library_to_twin"));
}

}  // namespace
}  // namespace moe::test
