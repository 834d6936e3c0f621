// Whom a rank waits for before it leaves.
#pragma once

#include <chrono>

namespace moe::bootstrap {

// Ranks [first, first + count): until each of them is leaving too, has left or has failed, and at most `patience`.
struct Company {
  int first = 0, count = 0;
  std::chrono::milliseconds patience{0};
};

}  // namespace moe::bootstrap
