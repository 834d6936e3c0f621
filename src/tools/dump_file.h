// The content of a rank's flight recorder: a file of moeCommDump, or the answer to moe_top. All times are on one clock:
// ns of rank 0's wall clock. docs/guide/watching.md describes the form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moe::tools {

struct DumpedStep {
  std::int64_t number;
  std::string call, step, phases;
  int handle;
  std::int64_t epoch, tokens, rowBytes;
  std::int64_t begin, firstWaitEnd, end;  // firstWaitEnd 0: none, or not known; end 0: under way
  int worstRank;                          // -1: none, or not known
  std::int64_t worstWaitNs;
};

// What a rank has done since its communicator was made, without its handles of localOnly.
struct DumpedTotals {
  std::int64_t since = 0;  // nanoseconds from then to the dump
  std::int64_t routes = 0, dispatches = 0, combines = 0;
  std::int64_t calls = 0, callRows = 0, callBytes = 0;  // of dispatches and combines, without replays of graphs
  std::optional<std::int64_t> stepNs, waitNs;           // none: the backend does not know

  // Replays of graphs have made operations, whose rows are in no call.
  bool replayed() const { return dispatches + combines > calls; }
};

struct RankDump {
  std::string job, host, backend, reason, failure;
  int rank = 0, nranks = 1, process = 0, result = 0;
  std::int64_t stepsRecorded = 0;
  std::int64_t taken = 0;              // when
  std::int64_t clockError = 0;         // the largest error of times
  std::optional<DumpedTotals> totals;  // none: the library is older, or its recorder is off
  std::vector<DumpedStep> steps;
};

// Throws std::runtime_error "NAME: reason" if the file is no dump.
RankDump parseDump(const std::string& text, const std::string& name);

// The dumps of one job in order of ranks, with the newest one of each rank. If `job` is empty, all dumps must belong to
// one job. Throws std::runtime_error if there are none, or if there are several jobs to choose from.
std::vector<RankDump> ofOneJob(std::vector<RankDump> dumps, const std::string& job);

}  // namespace moe::tools
