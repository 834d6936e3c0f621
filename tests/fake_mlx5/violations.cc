#include "fake_mlx5/violations.h"

#include <unistd.h>

#include <cstdio>

namespace moe::test {

void Violations::note(const std::string& what) {
  ++count_;
  std::FILE* file = path_.empty() ? stderr : std::fopen(path_.c_str(), "a");
  if (file == nullptr) file = stderr;
  std::fprintf(file, "fake_mlx5, process %d: %s\n", getpid(), what.c_str());
  if (file != stderr) std::fclose(file);
}

void Violations::note(std::uint32_t queuePair, std::uint64_t slot, const std::string& what) {
  char place[64];
  std::snprintf(place, sizeof(place), "queue pair %x, slot %llu: ", queuePair, static_cast<unsigned long long>(slot));
  note(place + what);
}

}  // namespace moe::test
