// The output of moe_trace: a trace in the JSON form that Perfetto and chrome://tracing open, and a picture of which
// rank waited for which. These are pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/dump_file.h"
#include "tools/waits.h"

namespace moe::tools {

// A process for each rank, with a thread for its steps and one for its first waits. Steps have their fields as
// arguments. Times begin with the first step.
std::string traceJson(const std::vector<RankDump>& dumps);

// A cell for each rank that waited, from top to bottom, and each that was awaited, from left to right.
std::string heatMapSvg(const WaitTable& waits, const std::string& title);

}  // namespace moe::tools
