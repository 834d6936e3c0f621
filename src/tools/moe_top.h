// The halves of moe_top: attach.cc asks the ranks of running jobs, over the sockets that they offer in a folder
// (moeConfig_t.watchFolder), and top_report.cc and top_json.cc make texts of their answers.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "tools/dump_file.h"

namespace moe::tools {

struct Answer {
  std::string socket;   // its path
  std::string text;     // the rank's dump; empty if there is none
  std::string problem;  // why not
};

// Asks all sockets of the folder at once. Those that nobody listens at any more are left out: a killed job leaves them.
// Throws an Error if the folder cannot be read.
std::vector<Answer> askAll(const std::string& folder, Deadline end);

// A table for people, of one job. Pure.
std::string topTable(const std::vector<RankDump>& dumps);

// The same of all jobs, as JSON. `problems` says which ranks did not answer. Pure.
std::string topJson(const std::vector<std::vector<RankDump>>& jobs, const std::vector<std::string>& problems);

// Metrics in Prometheus' text form, of all jobs. Pure.
std::string topMetrics(const std::vector<std::vector<RankDump>>& jobs);

}  // namespace moe::tools
