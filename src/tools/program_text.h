// Functions that all programs share: lines that fit a terminal, words, versions, and a check of standard output. This
// header includes little, unlike command_line.h.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace moe::tools {

inline constexpr std::size_t kTerminalColumns = 100;

// The text with line ends in place of blanks, so that no line is longer than `columns`, except for single long words.
std::string wrapped(const std::string& text, std::size_t columns);

// The words of a text, between blanks.
std::vector<std::string> splitWords(const std::string& text);

// "moe_perf 0.1.0, commit 1a2b3c4d5e6f"; without the commit if the program was not built in a checkout.
std::string versionText(const std::string& program);

// The commit of this program, followed by "-dirty" if files differed. Empty if it is not known.
std::string buildCommit();

// The exit status of a tool, which calls this as its last step: `status`, or 1 with a message if `status` is 0 and
// something written to standard output was lost. A program that has failed has already reported why.
int statusOfOutput(const char* program, int status);

}  // namespace moe::tools
