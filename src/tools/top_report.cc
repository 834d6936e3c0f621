// The report of moe_top about a job's ranks.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "tools/moe_top.h"
#include "tools/rates.h"
#include "tools/waits.h"

namespace moe::tools {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::string durationText(std::int64_t ns) {
  if (ns < 1'000'000) return fmt::format("{:.0f} us", static_cast<double>(ns) / 1e3);
  if (ns < kSecond) return fmt::format("{:.1f} ms", static_cast<double>(ns) / 1e6);
  return fmt::format("{:.1f} s", secondsOf(ns));
}

std::string stateOf(const RankDump& dump) {
  if (dump.result != 0) return "failed: " + dump.failure;
  if (dump.steps.empty()) return "no step yet";
  const DumpedStep& last = dump.steps.back();
  if (last.end != 0) return fmt::format("idle for {}", durationText(std::max<std::int64_t>(dump.taken - last.end, 0)));
  const std::string awaited = last.worstRank >= 0 ? fmt::format(", waits for rank {}", last.worstRank) : "";
  return fmt::format("in {} for {}{}", last.call, durationText(std::max<std::int64_t>(dump.taken - last.begin, 0)),
                     awaited);
}

// The rank that this one awaited longest, and the share of its time that this took.
std::string waitText(const WaitTable& waits, int rank) {
  int most = -1;
  double all = 0;
  for (int awaited = 0; awaited < waits.nranks; ++awaited) {
    all += waits.of(rank, awaited);
    if (waits.of(rank, awaited) > 0 && (most < 0 || waits.of(rank, awaited) > waits.of(rank, most))) most = awaited;
  }
  const double span = waits.span[static_cast<std::size_t>(rank)];
  if (!waits.known) return fmt::format("{:>8} {:>10}", "?", "?");
  if (most < 0 || span <= 0) return fmt::format("{:>7.1f}% {:>10}", 0.0, "-");
  return fmt::format("{:>7.1f}% {:>10}", 100 * all / span, fmt::format("rank {}", most));
}

// For a value between quotes.
std::string label(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

class Metrics {
 public:
  void begin(const char* name, const char* type, const char* help) {
    name_ = name;
    fmt::format_to(std::back_inserter(text_), "# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }
  void add(const RankDump& dump, double value, const std::string& labels = "") {
    fmt::format_to(std::back_inserter(text_), "{}{{job_id=\"{}\",rank=\"{}\",host=\"{}\"{}}} {}\n", name_,
                   label(dump.job), dump.rank, label(dump.host), labels, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string name_, text_;
};

template <class ValueOf>
void addForEachRank(Metrics* metrics, const std::vector<std::vector<RankDump>>& jobs, ValueOf valueOf) {
  for (const auto& dumps : jobs) {
    for (const RankDump& dump : dumps) metrics->add(dump, valueOf(dump));
  }
}

// Ranks that do not know a total have no such metric.
template <class ValueOf>
void addTotal(Metrics* metrics, const std::vector<std::vector<RankDump>>& jobs, ValueOf valueOf) {
  for (const auto& dumps : jobs) {
    for (const RankDump& dump : dumps) {
      if (!dump.totals) continue;
      if (const std::optional<double> value = valueOf(*dump.totals)) metrics->add(dump, *value);
    }
  }
}

void addTotals(Metrics* metrics, const std::vector<std::vector<RankDump>>& jobs) {
  using Value = std::optional<double>;
  const auto number = [](std::int64_t n) { return Value(static_cast<double>(n)); };
  const auto seconds = [](std::optional<std::int64_t> ns) { return ns ? Value(secondsOf(*ns)) : std::nullopt; };
  metrics->begin("moecomm_routes_total", "counter", "Routes that the rank has made by moeRoute.");
  addTotal(metrics, jobs, [&](const DumpedTotals& t) { return number(t.routes); });
  metrics->begin("moecomm_dispatches_total", "counter", "Dispatches that the rank has made.");
  addTotal(metrics, jobs, [&](const DumpedTotals& t) { return number(t.dispatches); });
  metrics->begin("moecomm_combines_total", "counter", "Combines that the rank has made.");
  addTotal(metrics, jobs, [&](const DumpedTotals& t) { return number(t.combines); });
  metrics->begin("moecomm_call_bytes_total", "counter", "Rows of the rank's own tokens, without replays of graphs.");
  addTotal(metrics, jobs, [&](const DumpedTotals& t) { return number(t.callBytes); });
  metrics->begin("moecomm_step_seconds_total", "counter", "Time in steps.");
  addTotal(metrics, jobs, [&](const DumpedTotals& t) { return seconds(t.stepNs); });
  metrics->begin("moecomm_wait_seconds_total", "counter", "Longest wait for another rank in each step, added up.");
  addTotal(metrics, jobs, [&](const DumpedTotals& t) { return seconds(t.waitNs); });
}

void addWaits(Metrics* metrics, const std::vector<RankDump>& dumps) {
  const WaitTable waits = waitsOf(dumps);
  if (!waits.known) return;
  for (const RankDump& dump : dumps) {
    const double span = waits.span[static_cast<std::size_t>(dump.rank)];
    for (int awaited = 0; awaited < waits.nranks; ++awaited) {
      const double waited = waits.of(dump.rank, awaited);
      if (span > 0 && waited > 0) metrics->add(dump, waited / span, fmt::format(",awaited=\"{}\"", awaited));
    }
  }
}

}  // namespace

std::string topTable(const std::vector<RankDump>& dumps) {
  std::string table;
  const auto out = std::back_inserter(table);
  const WaitTable waits = waitsOf(dumps);
  double span = 0;
  for (const double seconds : waits.span) span = std::max(span, seconds);
  fmt::format_to(out, "job {}: {} of {} ranks watched, the latest {:.2f} s\n", dumps[0].job, dumps.size(),
                 dumps[0].nranks, span);
  fmt::format_to(out, "{:>5} {:<12} {:>8} {:>9} {:>8} {:>9} {:>8} {:>8} {:>10}  {}\n", "rank", "host", "process",
                 "steps", "steps/s", "us/step", "GB/s", "waited", "mostly for", "state");
  for (const RankDump& dump : dumps) {
    const Rates rates = ratesOf(dump);
    fmt::format_to(out, "{:>5} {:<12.12} {:>8} {:>9} {:>8.0f} {:>9.1f} {:>8.3f} {}  {}\n", dump.rank, dump.host,
                   dump.process, dump.stepsRecorded, rates.stepsPerSecond, 1e6 * rates.meanStepSeconds,
                   rates.bytesPerSecond / 1e9, waitText(waits, dump.rank), stateOf(dump));
  }
  fmt::format_to(out, "slowest: {}\n", slowestRank(dumps).sentence);
  return table;
}

std::string topMetrics(const std::vector<std::vector<RankDump>>& jobs) {
  Metrics metrics;
  metrics.begin("moecomm_steps_total", "counter", "Steps that the rank has begun.");
  addForEachRank(&metrics, jobs, [](const RankDump& d) { return static_cast<double>(d.stepsRecorded); });
  addTotals(&metrics, jobs);
  metrics.begin("moecomm_failed", "gauge", "1 if the communicator has failed.");
  addForEachRank(&metrics, jobs, [](const RankDump& d) { return d.result != 0 ? 1.0 : 0.0; });
  metrics.begin("moecomm_recent_steps_per_second", "gauge", "Steps per second, of the latest recorded ones.");
  addForEachRank(&metrics, jobs, [](const RankDump& d) { return ratesOf(d).stepsPerSecond; });
  metrics.begin("moecomm_recent_step_seconds", "gauge", "Mean time of the recorded steps.");
  addForEachRank(&metrics, jobs, [](const RankDump& d) { return ratesOf(d).meanStepSeconds; });
  metrics.begin("moecomm_recent_bytes_per_second", "gauge", "Rows of the rank's own tokens in the recorded steps.");
  addForEachRank(&metrics, jobs, [](const RankDump& d) { return ratesOf(d).bytesPerSecond; });
  metrics.begin("moecomm_step_under_way_seconds", "gauge", "Time since the pending step began; 0: no step is pending.");
  addForEachRank(&metrics, jobs, [](const RankDump& d) {
    return d.steps.empty() || d.steps.back().end != 0 ? 0.0 : secondsOf(d.taken - d.steps.back().begin);
  });
  metrics.begin("moecomm_recent_wait_ratio", "gauge", "Share of its time that the rank waited for another one.");
  for (const auto& dumps : jobs) addWaits(&metrics, dumps);
  metrics.begin("moecomm_slowest", "gauge", "1 for the rank that keeps the others waiting, if one stands out.");
  for (const auto& dumps : jobs) {
    const int slowest = slowestRank(dumps).rank;
    for (const RankDump& dump : dumps) metrics.add(dump, dump.rank == slowest ? 1 : 0);
  }
  return metrics.text();
}

}  // namespace moe::tools
