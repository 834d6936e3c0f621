// The output of moe_trace: a trace in the JSON form that Perfetto and chrome://tracing open, and a picture of which
// rank waited for which. These are pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/dump_file.h"
#include "tools/waits.h"

namespace moe::tools {

// A process for the job. Each rank has a thread for its steps and one for its first waits: until the first missing rank
// came. Steps have their fields as arguments. Arrows lead from the step of a late rank to the waits that it caused.
// Times begin with the first step.
std::string traceJson(const std::vector<RankDump>& dumps);

// A cell for each rank that waited, from top to bottom, and each that was awaited, from left to right, with numbers
// where there is room for them, a scale, and the verdict below.
std::string heatMapSvg(const WaitTable& waits, const std::string& title, const std::string& verdict);

}  // namespace moe::tools
