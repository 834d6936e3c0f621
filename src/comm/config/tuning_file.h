// A tuning file: thresholds of moeModeAuto that were measured on this cluster. `moe_perf --tune` writes one, rank 0
// reads the one that MOECOMM_TUNING names, and moe_info --explain shows its thresholds. docs/reference/tuning.md has
// the form.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "comm/config/mode_limits.h"

namespace moe {

// The first line of a file, apart from comments and blank lines.
inline constexpr std::string_view kTuningVersion = "moecomm-tuning 1";

// A line with one threshold, without a newline.
std::string tuningLine(ModeSetup setup, Layout layout, std::int64_t bytes);

// `name` is the file's, for sentences. Throws moeInvalidArgument with the name, the line, its text and what is allowed.
ModeLimits parseTuning(std::string_view name, std::string_view text);

// Also throws if `path` cannot be read.
ModeLimits readTuningFile(const std::string& path);

}  // namespace moe
