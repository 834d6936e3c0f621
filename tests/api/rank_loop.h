// What ranks do that are to fail: small steps in a row, whose sums are checked, until one does not go well.
#pragma once

#include <functional>
#include <limits>
#include <string>

#include "support/api_world.h"

namespace moe::test {

struct LoopSettings {
  int rank = 0, nranks = 1;
  int mode = moeModeHt;
  bool cuda = false;
  int stepsMax = std::numeric_limits<int>::max();
  std::function<void(int)> beforeStep = [](int) {};
};

struct LoopEnd {
  moeResult_t result = moeSuccess;
  int steps = 0;       // that went well
  long wrong = 0;      // elements of their sums
  double seconds = 0;  // from the last step that was checked to the end
};

LoopEnd loopUntilFailure(const LoopSettings& settings, moeComm_t comm, Arena& arena);

// "moeRemoteError", ...; the number of what such a loop does not end with.
std::string nameOf(moeResult_t result);

// Whether the sentence is about this rank.
bool namesRank(const std::string& sentence, int rank);

}  // namespace moe::test
