// What the programs say alike: lines that fit a terminal, and versions.
#pragma once

#include <cstddef>
#include <string>

namespace moe::tools {

inline constexpr std::size_t kTerminalColumns = 100;

// The text with line ends in place of blanks, so that no line is longer than `columns` unless one word is.
std::string wrapped(const std::string& text, std::size_t columns);

// "moe_perf 0.1.0, commit 1a2b3c4d5e6f"; without the commit if the program was not built from a checkout.
std::string versionText(const std::string& program);

// The commit that this program was built from, "-dirty" behind it if files differed; empty if that is not known.
std::string buildCommit();

}  // namespace moe::tools
