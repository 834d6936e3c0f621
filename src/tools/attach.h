// How moe_top asks the ranks of running jobs: over the sockets that they offer in a folder (moeConfig_t.watchFolder).
#pragma once

#include <string>
#include <vector>

#include "base/deadline.h"

namespace moe::tools {

struct Answer {
  std::string socket;   // its path
  std::string text;     // the rank's dump; empty if there is none
  std::string problem;  // why not
};

// Asks all sockets of the folder at once. Those that nobody listens at any more are left out: a killed job leaves them.
// Throws an Error if the folder cannot be read.
std::vector<Answer> askAll(const std::string& folder, Deadline end);

}  // namespace moe::tools
