// Mistakes of posters that the software adapter saw. Each is one line in the file that FAKE_MLX5_REPORT names, or on
// standard error. Tests demand that there are none.
#pragma once

#include <cstdint>
#include <string>

namespace moe::test {

class Violations {
 public:
  explicit Violations(const char* path) : path_(path == nullptr ? "" : path) {}

  void note(const std::string& what);
  void note(std::uint32_t queuePair, std::uint64_t slot, const std::string& what);
  std::uint64_t count() const { return count_; }

 private:
  std::string path_;
  std::uint64_t count_ = 0;
};

}  // namespace moe::test
