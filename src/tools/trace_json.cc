#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>

#include <nlohmann/json.hpp>

#include "tools/trace_output.h"

namespace moe::tools {
namespace {

// Perfetto opens a process that is the only one, and sorts its threads by number. So all ranks share a process, and
// each has two threads of it. A thread with the number of its process would come first.
constexpr int kProcess = 1;
enum class Track : int { steps, waits };

int threadOf(int rank, Track track) {
  return kProcess + 1 + 2 * rank + static_cast<int>(track);
}

constexpr std::int64_t kArrowNsMin = 1000;  // of a wait: shorter ones would hide the others

class TraceWriter {
 public:
  explicit TraceWriter(std::int64_t origin) : origin_(origin) {}

  void add(const nlohmann::ordered_json& event) {
    text_ += text_.empty() ? "" : ",\n";
    text_ += event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  }
  void nameProcess(const std::string& name) {
    add({{"ph", "M"}, {"pid", kProcess}, {"name", "process_name"}, {"args", {{"name", name}}}});
  }
  void nameThread(int thread, const std::string& name) {
    add({{"ph", "M"}, {"pid", kProcess}, {"tid", thread}, {"name", "thread_name"}, {"args", {{"name", name}}}});
    add({{"ph", "M"},
         {"pid", kProcess},
         {"tid", thread},
         {"name", "thread_sort_index"},
         {"args", {{"sort_index", thread}}}});
  }
  void slice(int thread, const std::string& name, std::int64_t begin, std::int64_t end,
             const nlohmann::ordered_json& arguments) {
    add({{"ph", "X"},
         {"pid", kProcess},
         {"tid", thread},
         {"name", name},
         {"ts", microseconds(begin - origin_)},
         {"dur", microseconds(end - begin)},
         {"args", arguments}});
  }

  // An arrow between the slices that hold these times.
  void arrow(int from, std::int64_t leaves, int to, std::int64_t arrives) {
    ++arrows_;
    flow("s", from, leaves);
    flow("f", to, arrives);
  }
  void failure(const RankDump& dump) {
    add({{"ph", "i"},
         {"s", "t"},
         {"pid", kProcess},
         {"tid", threadOf(dump.rank, Track::steps)},
         {"name", "failure"},
         {"ts", microseconds(dump.taken - origin_)},
         {"args", {{"rank", dump.rank}, {"sentence", dump.failure}}}});
  }

  std::string take() const { return "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n" + text_ + "\n]}\n"; }

 private:
  static double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

  void flow(const char* phase, int thread, std::int64_t time) {
    add({{"ph", phase},
         {"bp", "e"},
         {"id", arrows_},
         {"cat", "wait"},
         {"name", "awaited"},
         {"pid", kProcess},
         {"tid", thread},
         {"ts", microseconds(time - origin_)}});
  }

  std::int64_t origin_;
  std::int64_t arrows_ = 0;
  std::string text_;
};

// The steps of the same number: those of one call on all ranks.
using StepsByRank = std::map<int, const DumpedStep*>;
using StepsByNumber = std::map<std::int64_t, StepsByRank>;

StepsByNumber byNumber(const std::vector<RankDump>& dumps) {
  StepsByNumber steps;
  for (const RankDump& dump : dumps) {
    for (const DumpedStep& step : dump.steps) {
      if (step.handle >= 0) steps[step.number][dump.rank] = &step;  // below 0: a handle for one rank alone
    }
  }
  return steps;
}

// The rank that this step waited for: the recorded one, or else the one that began the same step last. Nobody if that
// began before this step did, or if the wait is too short.
std::optional<int> lateRankOf(const DumpedStep& step, int rank, const StepsByRank& ranks, std::int64_t clockError) {
  if (step.worstRank >= 0) {
    const auto found = ranks.find(step.worstRank);
    const bool late = found != ranks.end() && found->second->begin > step.begin;
    if (!late || (step.end != 0 && step.worstWaitNs < kArrowNsMin)) return std::nullopt;
    return step.worstRank;
  }
  if (step.firstWaitEnd - step.begin < std::max(kArrowNsMin, 2 * clockError)) return std::nullopt;
  int last = rank;
  for (const auto& [other, its] : ranks) {
    if (its->begin > ranks.at(last)->begin) last = other;
  }
  return last == rank ? std::nullopt : std::optional<int>(last);
}

std::int64_t endOf(const RankDump& dump, const DumpedStep& step) {
  return step.end != 0 ? step.end : std::max(dump.taken, step.begin);
}

// The arrow begins with the late rank's step. It leads to the wait, or to the end of `step` if the wait ended before.
void addArrow(TraceWriter* trace, const RankDump& dump, const DumpedStep& step, const StepsByRank& ranks) {
  const std::optional<int> late = lateRankOf(step, dump.rank, ranks, dump.clockError);
  if (!late) return;
  const int from = threadOf(*late, Track::steps);
  const std::int64_t leaves = ranks.at(*late)->begin;
  const std::int64_t end = endOf(dump, step);
  if (step.firstWaitEnd > leaves) {
    trace->arrow(from, leaves, threadOf(dump.rank, Track::waits), step.firstWaitEnd - 1);
  } else if (end > leaves) {
    trace->arrow(from, leaves, threadOf(dump.rank, Track::steps), end - 1);
  }
}

void addStep(TraceWriter* trace, const RankDump& dump, const DumpedStep& step) {
  const std::int64_t end = endOf(dump, step);
  nlohmann::ordered_json arguments = {{"rank", dump.rank},     {"number", step.number},     {"step", step.step},
                                      {"phases", step.phases}, {"handle", step.handle},     {"operation", step.epoch},
                                      {"tokens", step.tokens}, {"row_bytes", step.rowBytes}};
  if (step.worstRank >= 0) {
    arguments["worst_rank"] = step.worstRank;
    arguments["worst_wait_us"] = static_cast<double>(step.worstWaitNs) / 1000;
  }
  if (step.end == 0) arguments["under_way"] = true;
  trace->slice(threadOf(dump.rank, Track::steps), step.call, step.begin, end, arguments);
  if (step.firstWaitEnd > step.begin) {
    trace->slice(threadOf(dump.rank, Track::waits), "first wait", step.begin, step.firstWaitEnd,
                 {{"rank", dump.rank}, {"number", step.number}});
  }
}

}  // namespace

std::string traceJson(const std::vector<RankDump>& dumps) {
  std::int64_t origin = INT64_MAX;
  for (const RankDump& dump : dumps) {
    if (!dump.steps.empty()) origin = std::min(origin, dump.steps.front().begin);
  }
  TraceWriter trace(origin);
  const StepsByNumber steps = byNumber(dumps);
  if (!dumps.empty()) trace.nameProcess(fmt::format("job {}, {} ranks", dumps[0].job, dumps[0].nranks));
  for (const RankDump& dump : dumps) {
    trace.nameThread(threadOf(dump.rank, Track::steps),
                     fmt::format("rank {} steps ({}, {})", dump.rank, dump.host, dump.process));
    trace.nameThread(threadOf(dump.rank, Track::waits), fmt::format("rank {} waits", dump.rank));
    for (const DumpedStep& step : dump.steps) {
      addStep(&trace, dump, step);
      if (step.handle >= 0) addArrow(&trace, dump, step, steps.at(step.number));
    }
    if (dump.result != 0 && !dump.steps.empty()) trace.failure(dump);
  }
  return trace.take();
}

}  // namespace moe::tools
