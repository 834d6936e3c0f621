// Reads small files of /sys and /proc. A missing file is no error, because kernels and containers differ in what they
// show.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moe::topology {

// The first line, without the line end; empty if the file cannot be read.
std::string readLine(const std::filesystem::path& file);

// The text that follows `label` in the first line that starts with it, without surrounding blanks; empty if there is
// none.
std::string valueIn(const std::filesystem::path& file, std::string_view label);

std::optional<long> readNumber(const std::filesystem::path& file);

// The names in a directory, sorted; empty if there is no such directory.
std::vector<std::string> listNames(const std::filesystem::path& directory);

// The full target of a link; empty if it leads nowhere.
std::filesystem::path resolve(const std::filesystem::path& link);

// The NUMA node of a device's directory, or -1.
int numaNodeOf(const std::filesystem::path& device);

}  // namespace moe::topology
