#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "tools/trace_output.h"

namespace moe::tools {
namespace {

constexpr int kStepThread = 1, kWaitThread = 2;

class TraceWriter {
 public:
  explicit TraceWriter(std::int64_t origin) : origin_(origin) {}

  void add(const nlohmann::ordered_json& event) {
    text_ += text_.empty() ? "" : ",\n";
    text_ += event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  void name(int rank, int thread, const char* kind, const std::string& name) {
    add({{"ph", "M"}, {"pid", rank}, {"tid", thread}, {"name", kind}, {"args", {{"name", name}}}});
  }
  void slice(int rank, int thread, const std::string& name, std::int64_t begin, std::int64_t end,
             const nlohmann::ordered_json& arguments) {
    add({{"ph", "X"},
         {"pid", rank},
         {"tid", thread},
         {"name", name},
         {"ts", microseconds(begin - origin_)},
         {"dur", microseconds(end - begin)},
         {"args", arguments}});
  }

  std::string take() const { return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + text_ + "\n]}\n"; }

 private:
  static double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

  std::int64_t origin_;
  std::string text_;
};

void addStep(TraceWriter* trace, const RankDump& dump, const DumpedStep& step) {
  const std::int64_t end = step.end != 0 ? step.end : std::max(dump.taken, step.begin);
  nlohmann::ordered_json arguments = {{"number", step.number},     {"step", step.step},       {"phases", step.phases},
                                      {"handle", step.handle},     {"operation", step.epoch}, {"tokens", step.tokens},
                                      {"row_bytes", step.rowBytes}};
  if (step.worstRank >= 0) {
    arguments["worst_rank"] = step.worstRank;
    arguments["worst_wait_us"] = static_cast<double>(step.worstWaitNs) / 1000;
  }
  if (step.end == 0) arguments["under_way"] = true;
  trace->slice(dump.rank, kStepThread, step.call, step.begin, end, arguments);
  if (step.firstWaitEnd > step.begin) {
    trace->slice(dump.rank, kWaitThread, "first wait", step.begin, step.firstWaitEnd, {{"number", step.number}});
  }
}

}  // namespace

std::string traceJson(const std::vector<RankDump>& dumps) {
  std::int64_t origin = INT64_MAX;
  for (const RankDump& dump : dumps) {
    if (!dump.steps.empty()) origin = std::min(origin, dump.steps.front().begin);
  }
  TraceWriter trace(origin);
  for (const RankDump& dump : dumps) {
    trace.name(dump.rank, 0, "process_name", fmt::format("rank {} ({}, {})", dump.rank, dump.host, dump.process));
    trace.add({{"ph", "M"}, {"pid", dump.rank}, {"name", "process_sort_index"}, {"args", {{"sort_index", dump.rank}}}});
    trace.name(dump.rank, kStepThread, "thread_name", "steps");
    trace.name(dump.rank, kWaitThread, "thread_name", "until the first missing rank came");
    for (const DumpedStep& step : dump.steps) addStep(&trace, dump, step);
    if (dump.result == 0 || dump.steps.empty()) continue;
    trace.add({{"ph", "i"},
               {"s", "p"},
               {"pid", dump.rank},
               {"tid", kStepThread},
               {"name", "failure"},
               {"ts", static_cast<double>(dump.taken - origin) / 1000},
               {"args", {{"sentence", dump.failure}}}});
  }
  return trace.take();
}

}  // namespace moe::tools
