// What the kernel says of this process's mappings, to see whether a window has memory.
#pragma once

#include <unistd.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace moe::test {

struct Mapping {
  std::size_t bytes = 0, residentBytes = 0;
  bool accessible = false;
};

// The mapping that contains this address; empty if there is none.
inline Mapping mappingAt(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream smaps("/proc/self/smaps");
  Mapping found;
  for (std::string line; std::getline(smaps, line);) {
    std::uintptr_t begin = 0, end = 0;
    char rights[5] = {};
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, rights) == 3) {
      if (found.bytes > 0) return found;
      if (begin <= wanted && wanted < end) found = {end - begin, 0, rights[0] == 'r'};
    }
    std::size_t kib = 0;
    if (found.bytes > 0 && std::sscanf(line.c_str(), "Rss: %zu kB", &kib) == 1) found.residentBytes = kib << 10;
  }
  return found;
}

inline int mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) ++count;
  return count;
}

// How many mappings and descriptors of windows this process has.
inline int windowsHeld() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("moecomm-window") != std::string::npos ? 1 : 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    count += target.find("moecomm-window") != std::string::npos ? 1 : 0;
  }
  return count;
}

}  // namespace moe::test
