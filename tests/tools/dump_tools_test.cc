// The output of moe_top and moe_trace for given dumps.
#include <gtest/gtest.h>

#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tools/dump_file.h"
#include "tools/moe_top.h"
#include "tools/trace_output.h"
#include "tools/waits.h"

namespace moe::test {
namespace {

using namespace moe::tools;

constexpr std::int64_t kMs = 1'000'000;

DumpedStep step(std::int64_t number, std::int64_t begin, std::int64_t end, int worst = -1, std::int64_t wait = 0) {
  return {number, "moeDispatch", "llDispatch", "both", 0, number, 16, 2048, begin, 0, end, worst, wait};
}

// Ranks that make 10 steps of 1 ms, one every 10 ms; a second has passed when they are asked.
std::vector<RankDump> job(int nranks) {
  std::vector<RankDump> dumps(static_cast<std::size_t>(nranks));
  for (int rank = 0; rank < nranks; ++rank) {
    RankDump& dump = dumps[static_cast<std::size_t>(rank)];
    dump.job = "job";
    dump.host = "host";
    dump.rank = rank;
    dump.nranks = nranks;
    dump.stepsRecorded = 10;
    dump.taken = 1000 * kMs;
    dump.clockError = 100;
    for (int i = 0; i < 10; ++i) dump.steps.push_back(step(i + 1, 10 * i * kMs, (10 * i + 1) * kMs));
  }
  return dumps;
}

void wait(RankDump* dump, int worst, std::int64_t ns) {
  for (DumpedStep& one : dump->steps) {
    one.worstRank = worst;
    one.worstWaitNs = ns;
  }
}

TEST(DumpTools, NameTheRankThatOthersWaitFor) {
  std::vector<RankDump> dumps = job(4);
  for (const int rank : {0, 1, 3}) wait(&dumps[static_cast<std::size_t>(rank)], 2, 5 * kMs);
  wait(&dumps[2], 0, 1000);
  const WaitTable waits = waitsOf(dumps);
  EXPECT_NEAR(waits.of(0, 2), 0.05, 1e-9);
  EXPECT_NEAR(waits.shareFor(2), 0.05, 1e-9);
  EXPECT_EQ(slowestRank(dumps).rank, 2);
  EXPECT_EQ(slowestRank(dumps).sentence, "rank 2: the others waited for it 5.0 % of the time");
}

TEST(DumpTools, NameNobodyIfRanksWaitForEachOther) {
  std::vector<RankDump> dumps = job(4);
  for (int rank = 0; rank < 4; ++rank) wait(&dumps[static_cast<std::size_t>(rank)], (rank + 1) % 4, 5 * kMs);
  EXPECT_EQ(slowestRank(dumps).rank, -1);
  for (RankDump& dump : dumps) wait(&dump, 2, 10);  // far less than what counts
  EXPECT_EQ(slowestRank(dumps).rank, -1);
}

TEST(DumpTools, CountAStepThatIsUnderWay) {
  std::vector<RankDump> dumps = job(2);
  dumps[0].steps.push_back(step(11, 200 * kMs, 0, 1, 0));
  EXPECT_NEAR(waitsOf(dumps).of(0, 1), 0.8, 1e-9);
  const std::string table = topTable(dumps);
  EXPECT_NE(table.find("in moeDispatch for 800.0 ms, waits for rank 1"), std::string::npos) << table;
}

TEST(DumpTools, WithoutWaitsNameTheRankThatBeginsLast) {
  std::vector<RankDump> dumps = job(3);
  EXPECT_EQ(slowestRank(dumps).rank, -1);
  for (DumpedStep& one : dumps[1].steps) one.begin += 50'000, one.end += 50'000;
  EXPECT_EQ(slowestRank(dumps).rank, 1);
  EXPECT_NEAR(latenessOf(dumps)[1], 50e-6, 1e-9);
  dumps[0].clockError = 40'000;  // the difference may be the clocks'
  EXPECT_EQ(slowestRank(dumps).rank, -1);
  // Steps that a ring has lost are not compared.
  dumps[0].clockError = 100;
  dumps[0].steps.erase(dumps[0].steps.begin(), dumps[0].steps.begin() + 5);
  EXPECT_NEAR(latenessOf(dumps)[1], 50e-6, 1e-9);
}

const char* kText = R"({"format":"moecomm recorder","version":1,"job":"a","rank":1,"nranks":2,"domain_size":2,
  "host":"h","process":7,"backend":"host","reason":"call","result":0,"failure":"",
  "clock":{"step_ns":1000,"wall_ns":500000,"error_ns":5},"to_rank0":{"offset_ns":-100000,"error_ns":20},
  "steps_recorded":1,"columns":["number","call","step","phases","handle","epoch","tokens","row_bytes","begin_ns",
  "first_wait_end_ns","end_ns","worst_rank","worst_wait_ns","later"],
  "steps":[[1,"moeRoute","route","both",0,1,4,0,900,0,950,0,10,"x"]]})";

TEST(DumpTools, PutTimesOnOneClock) {
  const RankDump dump = parseDump(kText, "file");
  EXPECT_EQ(dump.taken, 400'000);
  EXPECT_EQ(dump.clockError, 25);
  ASSERT_EQ(dump.steps.size(), 1u);
  EXPECT_EQ(dump.steps[0].begin, 399'900);
  EXPECT_EQ(dump.steps[0].end, 399'950);
  EXPECT_EQ(dump.steps[0].firstWaitEnd, 0);
}

TEST(DumpTools, ReadTotalsIfThereAreAny) {
  EXPECT_FALSE(parseDump(kText, "file").totals);
  std::string text = kText;
  text.insert(text.find("\"steps_recorded\""),
              R"("totals":{"since_wall_ns":200000,"routes":1,"dispatches":2,"combines":3,"calls":4,"call_rows":5,)"
              R"("call_bytes":6,"step_ns":7},)");
  const auto totals = parseDump(text, "file").totals;
  ASSERT_TRUE(totals);
  EXPECT_EQ(totals->since, 300'000) << "by one host's clock, without the offset to rank 0's";
  EXPECT_EQ(totals->routes, 1);
  EXPECT_EQ(totals->dispatches, 2);
  EXPECT_EQ(totals->combines, 3);
  EXPECT_EQ(totals->callRows, 5);
  EXPECT_EQ(totals->callBytes, 6);
  EXPECT_EQ(totals->stepNs, 7);
  EXPECT_FALSE(totals->waitNs);
  EXPECT_TRUE(totals->replayed());
  text.replace(text.find("\"combines\":3"), 12, "\"combines\":2");
  EXPECT_FALSE(parseDump(text, "file").totals->replayed());
  text.replace(text.find("\"combines\""), 10, "\"combined\"");
  EXPECT_THROW(parseDump(text, "file"), std::runtime_error);
}

TEST(DumpTools, RefuseWhatIsNoDump) {
  const auto refusal = [](std::string text, const std::string& from, const std::string& to) -> std::string {
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    try {
      parseDump(text, "file");
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_NE(refusal("{", "", "").find("file: "), std::string::npos);
  EXPECT_NE(refusal(kText, "recorder", "trace").find("not a dump"), std::string::npos);
  EXPECT_NE(refusal(kText, "\"version\":1", "\"version\":2").find("version is 2"), std::string::npos);
  EXPECT_NE(refusal(kText, "\"rank\":1", "\"rank\":2").find("rank 2 of 2"), std::string::npos);
  EXPECT_NE(refusal(kText, "950,0,10", "950,9,10").find("a rank that does not exist"), std::string::npos);
  EXPECT_NE(refusal(kText, "\"begin_ns\"", "\"began_ns\""), "none");
  EXPECT_NE(refusal(kText, "[1,\"moe", "[\"1\",\"moe"), "none");
  EXPECT_EQ(refusal(kText, "", ""), "none");
}

TEST(DumpTools, TakeOneJobAndTheNewestOfEachRank) {
  std::vector<RankDump> dumps = job(2), newer = job(2);
  newer[1].taken += 5;
  dumps.push_back(newer[1]);
  const auto found = ofOneJob(dumps, "");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].taken, newer[1].taken);
  dumps.back().job = "other";
  EXPECT_THROW(ofOneJob(dumps, ""), std::runtime_error);
  EXPECT_EQ(ofOneJob(dumps, "other").size(), 1u);
  EXPECT_THROW(ofOneJob(dumps, "third"), std::runtime_error);
  EXPECT_THROW(ofOneJob({}, ""), std::runtime_error);
}

TEST(DumpTools, MakeATraceAndAPicture) {
  std::vector<RankDump> dumps = job(2);
  dumps[1].result = 6;
  dumps[1].failure = "a \"sentence\"";
  dumps[1].host = "h<&";
  dumps[0].steps[3].firstWaitEnd = dumps[0].steps[3].begin + 1000;
  const auto events = nlohmann::json::parse(traceJson(dumps))["traceEvents"];
  int steps = 0, waits = 0, failures = 0;
  for (const auto& event : events) {
    steps += event["ph"] == "X" && event["tid"].get<int>() % 2 == 0;
    waits += event["ph"] == "X" && event["tid"] == 3;  // of rank 0
    EXPECT_EQ(event["pid"], 1) << "Perfetto opens a process that is the only one";
    failures += event["ph"] == "i" && event["args"]["sentence"] == "a \"sentence\"";
  }
  EXPECT_EQ(steps, 20);
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(failures, 1);
  EXPECT_FALSE(nlohmann::json::parse(traceJson({})).is_null());
}

int countOf(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(DumpTools, DrawWaitsWithNumbersAScaleAndAVerdict) {
  std::vector<RankDump> dumps = job(3);
  wait(&dumps[0], 2, 5 * kMs);
  wait(&dumps[1], 2, 1 * kMs);
  wait(&dumps[2], 0, 5'000);
  std::string svg = heatMapSvg(waitsOf(dumps), "a<b", "rank 2: it & others");
  EXPECT_NE(svg.find(">a&lt;b, in ms</text>"), std::string::npos);
  EXPECT_NE(svg.find("rank 1 waited 10.000 ms for rank 2"), std::string::npos);
  EXPECT_NE(svg.find("rank 1 waited 0.000 ms for rank 0"), std::string::npos);
  EXPECT_NE(svg.find(R"(fill="white" font-size="11">50</text>)"), std::string::npos) << "on a dark cell";
  EXPECT_NE(svg.find(R"(fill="#222222" font-size="11">10</text>)"), std::string::npos);
  EXPECT_EQ(countOf(svg, ">&lt;0.1</text>"), 1);
  EXPECT_EQ(countOf(svg, "font-size=\"11\">"), 6) << "no number where a rank meets itself";
  for (const char* part : {">50 ms</text>", ">25 ms</text>", ">0 ms</text>"}) EXPECT_EQ(countOf(svg, part), 1) << part;
  EXPECT_NE(svg.find(">slowest: rank 2: it &amp; others</text>"), std::string::npos);
  EXPECT_EQ(svg.find("no waits are recorded"), std::string::npos);
  svg = heatMapSvg(waitsOf(job(64)), "many", "nobody");
  EXPECT_EQ(countOf(svg, "font-size=\"11\">"), 0) << "cells are too small for numbers";
  EXPECT_NE(svg.find("no waits are recorded"), std::string::npos);
}

// The arrows of a trace: "thread -> thread at us, us". Rank r has the threads 2 + 2 r for steps and 3 + 2 r for waits.
std::vector<std::string> arrowsOf(const std::vector<RankDump>& dumps) {
  std::vector<std::string> arrows;
  nlohmann::json begin;
  const auto trace = nlohmann::json::parse(traceJson(dumps));
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "s") begin = event;
    if (event["ph"] != "f") continue;
    EXPECT_EQ(event["id"], begin["id"]);
    arrows.push_back(begin["tid"].dump() + " -> " + event["tid"].dump() + " at " + begin["ts"].dump() + ", " +
                     event["ts"].dump());
  }
  return arrows;
}

TEST(DumpTools, DrawArrowsFromLateRanksToTheWaitsForThem) {
  std::vector<RankDump> dumps = job(3);
  for (RankDump& dump : dumps) dump.steps.resize(2);
  EXPECT_EQ(arrowsOf(dumps), std::vector<std::string>());
  DumpedStep& late = dumps[1].steps[1];
  late.begin += 100'000;
  wait(&dumps[0], 1, 100'000);
  dumps[0].steps[1].firstWaitEnd = dumps[0].steps[1].begin + 200'000;
  EXPECT_EQ(arrowsOf(dumps), std::vector<std::string>{"4 -> 3 at 10100.0, 10199.999"});
  dumps[0].steps[1].firstWaitEnd = dumps[0].steps[1].begin + 50'000;  // another rank came before
  EXPECT_EQ(arrowsOf(dumps), std::vector<std::string>{"4 -> 2 at 10100.0, 10999.999"});
  dumps[0].steps[1].worstWaitNs = 999;
  EXPECT_EQ(arrowsOf(dumps), std::vector<std::string>()) << "too short";
  // If no rank has noted for which rank it waited, the arrow begins at the rank that began last.
  dumps[0].steps[1].worstRank = -1;
  dumps[0].steps[1].firstWaitEnd = dumps[0].steps[1].begin + 200'000;
  EXPECT_EQ(arrowsOf(dumps), std::vector<std::string>{"4 -> 3 at 10100.0, 10199.999"});
  for (RankDump& dump : dumps) dump.steps[1].handle = -1;
  EXPECT_EQ(arrowsOf(dumps), std::vector<std::string>()) << "a handle for one rank alone";
}

TEST(DumpTools, TellProgramsWhatTheTableTells) {
  std::vector<RankDump> dumps = job(2);
  wait(&dumps[0], 1, 5 * kMs);
  dumps[0].stepsRecorded = 12345;
  dumps[0].steps.push_back(step(11, 200 * kMs, 0, 1, 0));
  dumps[1].result = 6;
  dumps[1].failure = "a \"sentence\"";
  EXPECT_NE(topTable(dumps).find("  12345 "), std::string::npos) << topTable(dumps);
  const auto json = nlohmann::json::parse(topJson({dumps}, {"a problem"}));
  const auto& first = json["jobs"][0]["ranks"][0];
  const auto& second = json["jobs"][0]["ranks"][1];
  EXPECT_EQ(json["jobs"][0]["slowest"]["rank"], 1);
  EXPECT_EQ(first["steps_total"], 12345);
  EXPECT_EQ(first["under_way"]["awaited"], 1);
  EXPECT_EQ(first["under_way"]["seconds"], 0.8);
  EXPECT_GT(first["recent_wait_ratio"]["1"], 0.8);
  EXPECT_EQ(first["failed"], false);
  EXPECT_TRUE(second["under_way"].is_null());
  EXPECT_EQ(second["failure"], "a \"sentence\"");
  EXPECT_EQ(json["problems"][0], "a problem");
  EXPECT_EQ(nlohmann::json::parse(topJson({}, {}))["jobs"].size(), 0u);
}

DumpedTotals totalsOf(std::int64_t count) {
  DumpedTotals totals;
  totals.since = 90'000 * kMs;
  totals.routes = totals.dispatches = totals.combines = count;
  totals.calls = 2 * count;
  totals.callRows = 16 * count;
  totals.callBytes = 2048 * totals.callRows;
  return totals;
}

// The lines of a text.
std::vector<std::string> linesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(DumpTools, ShowTotalsInATableThatFits) {
  std::vector<RankDump> dumps = job(4);
  dumps[0].totals = totalsOf(1000);
  dumps[0].totals->stepNs = 12'345 * kMs;
  dumps[0].totals->waitNs = 4'000 * kMs;
  dumps[1].host = "a-host-with-a-very-long-name";
  dumps[1].totals = totalsOf(123'456'789'012);  // the longest numbers
  dumps[1].totals->calls -= 1;
  dumps[1].totals->stepNs = 9'000'000'000 * kMs;
  dumps[2].totals = totalsOf(0);
  const auto lines = linesOf(totalsTable(dumps));
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "job job: 4 of 4 ranks watched, totals of 90.0 s");
  EXPECT_EQ(lines[1], " rank host         routes dispatches combines    rows   bytes in steps  waited");
  EXPECT_EQ(lines[2], "    0 host           1000       1000     1000   16000  32.77M   12.3 s   4.0 s");
  EXPECT_EQ(lines[3], "    1 a-host-with- 123.5G     123.5G   123.5G  1.98T+  4e+15+    104 d       ?");
  EXPECT_EQ(lines[5], "    3 host         no totals: an older library, or MOECOMM_RECORDER=off");
  for (const std::string& line : lines) EXPECT_LE(line.size(), 79u) << line;
}

TEST(DumpTools, TellProgramsTotals) {
  std::vector<RankDump> dumps = job(2);
  dumps[0].totals = totalsOf(1000);
  dumps[0].totals->stepNs = 1'500 * kMs;
  const auto json = nlohmann::json::parse(topJson({dumps}, {}));
  const auto& totals = json["jobs"][0]["ranks"][0]["totals"];
  EXPECT_EQ(totals["dispatches"], 1000);
  EXPECT_EQ(totals["call_bytes"], 32'768'000);
  EXPECT_EQ(totals["seconds"], 90);
  EXPECT_EQ(totals["step_seconds"], 1.5);
  EXPECT_TRUE(totals["wait_seconds"].is_null());
  EXPECT_EQ(totals["replayed"], false);
  EXPECT_TRUE(json["jobs"][0]["ranks"][1]["totals"].is_null());
  const std::string metrics = topMetrics({dumps});
  EXPECT_EQ(countOf(metrics, "\nmoecomm_dispatches_total{"), 1) << "rank 1 has no totals";
  EXPECT_EQ(countOf(metrics, "\nmoecomm_step_seconds_total{job_id=\"job\",rank=\"0\",host=\"host\"} 1.5\n"), 1);
  EXPECT_EQ(countOf(metrics, "\nmoecomm_wait_seconds_total{"), 0);
}

TEST(TopAnswers, ArriveAsTheyWereBehindWhatAShellPrints) {
  const std::vector<Answer> sent = {{"a.sock", kText, ""}, {"b.sock", "", "\"late\"\n\xc3\xa9"}};
  const std::string text = answersText(sent);
  EXPECT_EQ(countOf(text, "\n"), 1) << "one line";
  for (const char* before : {"", "Welcome\n"}) {
    const std::vector<Answer> got = parseAnswers(before + text + "bye\n");
    ASSERT_EQ(got.size(), 2u);
    EXPECT_EQ(got[0].socket, "a.sock");
    EXPECT_EQ(got[0].text, kText);
    EXPECT_EQ(got[1].problem, sent[1].problem);
  }
  EXPECT_TRUE(parseAnswers(answersText({})).empty());
}

TEST(TopAnswers, AreRefusedWithAReason) {
  const auto refusal = [](const std::string& output) -> std::string {
    try {
      parseAnswers(output);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal(""), "its output is not that of moe_top");
  EXPECT_EQ(refusal("see " + answersText({})), "its output is not that of moe_top") << "not at the begin of a line";
  EXPECT_EQ(refusal(R"({"format":"moecomm answers","version":2})"),
            "its moe_top writes version 2 of its answers, but only version 1 is known");
  for (const char* rest : {"", R"(,"version":1})", R"(,"version":1,"answers":[{"socket":"a","text":1,"problem":""}]})",
                           R"(,"version":1,"answers":[{"socket":"a","text":""}]})"}) {
    EXPECT_EQ(refusal(std::string(R"({"format":"moecomm answers")") + rest).find("its answers cannot be read: "), 0u)
        << rest;
  }
}

TEST(DumpTools, EscapeLabelsOfMetrics) {
  std::vector<RankDump> dumps = job(1);
  dumps[0].host = "a\"b\\c";
  EXPECT_NE(topMetrics({dumps}).find(R"(host="a\"b\\c")"), std::string::npos);
}

}  // namespace
}  // namespace moe::test
