#include "topology/sysfs.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <system_error>

namespace moe::topology {

std::string readLine(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string valueIn(const std::filesystem::path& file, std::string_view label) {
  constexpr const char* kBlanks = " \t";
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(label, 0) != 0) continue;
    const std::size_t begin = line.find_first_not_of(kBlanks, label.size());
    return begin == std::string::npos ? "" : line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin);
  }
  return "";
}

std::optional<long> readNumber(const std::filesystem::path& file) {
  const std::string line = readLine(file);
  long number = 0;
  const auto parsed = std::from_chars(line.data(), line.data() + line.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  return number;
}

std::vector<std::string> listNames(const std::filesystem::path& directory) {
  // Not a directory_iterator, which ends the process when memory runs out.
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), &::closedir);
  std::vector<std::string> names;
  while (const dirent* entry = open ? ::readdir(open.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::filesystem::path resolve(const std::filesystem::path& link) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(link, error);
  return error ? std::filesystem::path() : path;
}

int numaNodeOf(const std::filesystem::path& device) {
  return static_cast<int>(readNumber(device / "numa_node").value_or(-1));
}

}  // namespace moe::topology
