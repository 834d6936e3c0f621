// The halves of moe_top. attach.cc asks the ranks of running jobs, over the sockets that they offer in a folder
// (moeConfig_t.watchFolder), and top_hosts.cc asks other hosts. The other top_*.cc make texts of their answers.
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"
#include "tools/dump_file.h"
#include "tools/top_answers.h"

namespace moe::tools {

// Asks all sockets of the folder at once. Those that nobody listens at any more are left out: a killed job leaves them.
// Throws an Error if the folder cannot be read.
std::vector<Answer> askAll(const std::string& folder, Deadline end);

// Makes a table of one job, for people. A pure function.
std::string topTable(const std::vector<RankDump>& dumps);

// Makes a table of what the ranks of one job have done since it began, at most 79 columns wide. A pure function.
std::string totalsTable(const std::vector<RankDump>& dumps);

// Makes a JSON text of all jobs. `problems`: the ranks that did not answer. A pure function.
std::string topJson(const std::vector<std::vector<RankDump>>& jobs, const std::vector<std::string>& problems);

// Makes metrics of all jobs in the text form of Prometheus. A pure function.
std::string topMetrics(const std::vector<std::vector<RankDump>>& jobs);

}  // namespace moe::tools
