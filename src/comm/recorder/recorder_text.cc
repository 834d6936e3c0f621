#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "comm/recorder/flight_recorder.h"

namespace moe {
namespace {

// If the host has read a record while it was being written, its step may be invalid.
StepRow rowIfKnown(Step step) {
  constexpr StepRow kNone{{}, "?", StepKind::dispatch, StepFamily::htDispatch, Spread::once, false, 0, 0, 0};
  return static_cast<std::size_t>(step) < kStepCount ? rowOf(step) : kNone;
}

const char* callOf(const StepRow& row) {
  if (row.kind == StepKind::route) return "moeRoute";
  if (row.routes()) return "moeRouteDispatch";
  return row.combines() ? "moeCombine" : "moeDispatch";
}

const char* nameOfPhases(int phases) {
  return phases == kSendPhase ? "send" : phases == kReceivePhase ? "receive" : "both";
}

// Names and sentences may contain any bytes.
std::string jsonString(std::string_view text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(json), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      json += static_cast<unsigned char>(c) < 0x7f ? c : '?';
    }
  }
  return json + '"';
}

void addRecord(fmt::memory_buffer* json, const StepRecord& r) {
  const StepRow row = rowIfKnown(stepOfWhat(r.what));
  const std::uint64_t end = r.end >= r.begin ? r.end : 0;
  fmt::format_to(std::back_inserter(*json), "[{},\"{}\",\"{}\",\"{}\",{},{},{},{},{},{},{},{},{}]", r.number,
                 callOf(row), row.name, nameOfPhases(phasesOfWhat(r.what)), handleOfWhat(r.what), r.epoch,
                 static_cast<std::uint32_t>(r.size), r.size >> 32, r.begin, r.firstWaitEnd, end, rankOfWait(r.worst),
                 timeOfWait(r.worst));
}

void addTotals(fmt::memory_buffer* json, const Totals& t) {
  const auto out = std::back_inserter(*json);
  fmt::format_to(out, "\"totals\":{{\"since_wall_ns\":{},\"routes\":{},\"dispatches\":{},\"combines\":{},",
                 t.sinceWallNs, t.routes, t.dispatches, t.combines);
  fmt::format_to(out, "\"calls\":{},\"call_rows\":{},\"call_bytes\":{}", t.calls, t.rows, t.bytes);
  if (t.stepNs) fmt::format_to(out, ",\"step_ns\":{}", *t.stepNs);
  if (t.waitNs) fmt::format_to(out, ",\"wait_ns\":{}", *t.waitNs);
  fmt::format_to(out, "}},\n");
}

}  // namespace

std::vector<StepRecord> recordsOf(StepRecorder& copy) {
  std::vector<StepRecord> records;
  std::uint64_t next = UINT64_MAX;  // begin of the next step
  const std::uint64_t oldest = copy.steps > kRecordedSteps ? copy.steps - kRecordedSteps + 1 : 1;
  for (std::uint64_t number = copy.steps; number >= oldest; --number) {
    const StepRecord& record = *copy.of(number);
    if (record.number != number || record.begin > next) continue;
    next = record.begin;
    records.push_back(record);
  }
  std::reverse(records.begin(), records.end());
  return records;
}

void tellNanoseconds(StepRecorder* copy, const TickScale& scale) {
  copy->inTicks = 0;
  for (StepRecord& r : copy->records) {
    for (std::uint64_t* time : {&r.begin, &r.end, &r.firstWaitEnd}) {
      if (*time != 0) *time = scale.nanosecondsAt(*time);
    }
    const auto waited = static_cast<double>(timeOfWait(r.worst)) * scale.nsPerTick;
    if (r.worst != 0) r.worst = waitWord(rankOfWait(r.worst), static_cast<std::uint64_t>(waited));
  }
}

std::string recorderText(const RecorderOwner& owner, std::uint64_t steps, const std::vector<StepRecord>& records) {
  fmt::memory_buffer json;
  const auto out = std::back_inserter(json);
  fmt::format_to(out, "{{\"format\":\"moecomm recorder\",\"version\":1,\n");
  fmt::format_to(out, "\"job\":{},\"rank\":{},\"nranks\":{},\"domain_size\":{},\"host\":{},\"process\":{},\n",
                 jsonString(owner.job), owner.rank, owner.nranks, owner.domainSize, jsonString(owner.host),
                 owner.processId);
  fmt::format_to(out, "\"backend\":{},\"reason\":{},\"result\":{},\"failure\":{},\n", jsonString(owner.backend),
                 jsonString(owner.reason), static_cast<int>(owner.result), jsonString(owner.sentence));
  fmt::format_to(out, "\"clock\":{{\"step_ns\":{},\"wall_ns\":{},\"error_ns\":{}}},\n", owner.clock.stepNs,
                 owner.clock.wallNs, owner.clock.errorNs);
  fmt::format_to(out, "\"to_rank0\":{{\"offset_ns\":{},\"error_ns\":{}}},\n", owner.toRank0.offsetNs,
                 owner.toRank0.errorNs);
  if (owner.totals) addTotals(&json, *owner.totals);
  fmt::format_to(out, "\"steps_recorded\":{},\n\"columns\":[\"number\",\"call\",\"step\",\"phases\",\"handle\",",
                 steps);
  fmt::format_to(out, "\"epoch\",\"tokens\",\"row_bytes\",\"begin_ns\",\"first_wait_end_ns\",\"end_ns\",");
  fmt::format_to(out, "\"worst_rank\",\"worst_wait_ns\"],\n\"steps\":[");
  const char* between = "\n";
  for (const StepRecord& record : records) {
    fmt::format_to(out, "{}", between);
    addRecord(&json, record);
    between = ",\n";
  }
  fmt::format_to(out, "\n]}}\n");
  return fmt::to_string(json);
}

}  // namespace moe
