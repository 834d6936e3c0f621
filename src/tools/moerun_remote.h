// How a rank on another host is started. A shell program is ssh's argument, which every user of that host can read. The
// program reads everything secret from its standard input.
#pragma once

#include <string>

#include "tools/moerun_job.h"
#include "tools/moerun_plan.h"

namespace moe::tools {

// Text that a POSIX shell reads back as one word.
std::string shellQuote(const std::string& text);

// The shell program that runs a rank on the far side of ssh. It reads `remoteInput` first, and ends the rank when its
// input closes. It contains no value of a variable.
std::string remoteScript(const Job& job);

// The rank's variables, a line each.
std::string remoteInput(const Job& job, const Placement& placement);

}  // namespace moe::tools
