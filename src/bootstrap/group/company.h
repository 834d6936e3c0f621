// The ranks that a rank waits for before it leaves.
#pragma once

#include <chrono>

namespace moe::bootstrap {

// Ranks [first, first + count). The wait ends when each of them is leaving too, has left or has failed, or after
// `patience`.
struct Company {
  int first = 0, count = 0;
  std::chrono::milliseconds patience{0};
};

}  // namespace moe::bootstrap
