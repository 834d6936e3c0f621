// What moe_top shows of a job's ranks: a table for people, and metrics in Prometheus' text form. Pure.
#pragma once

#include <string>
#include <vector>

#include "tools/dump_file.h"

namespace moe::tools {

// Of one job.
std::string topTable(const std::vector<RankDump>& dumps);

// Of all jobs.
std::string topMetrics(const std::vector<std::vector<RankDump>>& jobs);

}  // namespace moe::tools
