// moe_perf --plot: times and GB/s over tokens.
#pragma once

#include <string>

#include "perf/moe_perf/stored_report.h"

namespace moe::perf {

// Draws cases as SVG: the median times with a band from the shortest to the longest, GB/s, and ceilings, dashed, where
// they were measured. Cases that differ in more than their tokens are curves of their own. A case without tokens has no
// place on the axis. Throws std::runtime_error if nothing is left, or if there are too many curves.
std::string plotText(const Cases& cases);

}  // namespace moe::perf
