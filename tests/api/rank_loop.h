// The work of ranks that are to fail: small steps in a row with checked sums, until one fails.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "support/api_world.h"
#include "support/held.h"

namespace moe::test {

struct LoopSettings {
  int rank = 0, nranks = 1;
  int mode = moeModeHt;
  bool cuda = false;
  int stepsMax = std::numeric_limits<int>::max();
  std::function<void(int)> beforeStep = [](int) {};
  std::function<void(bool)> inLibrary = [](bool) {};  // around its calls that may fail
};

struct LoopEnd {
  moeResult_t result = moeSuccess;
  int steps = 0;       // that went well
  long wrong = 0;      // elements of their sums
  double seconds = 0;  // from the last step that was checked to the end
};

// A rank that has joined its group, made such steps and left.
struct RankEnd {
  LoopEnd loop;             // or why it could not join
  std::string sentence;     // of the failure, if there was one
  bool left = false;        // moeCommDestroy went well ...
  double leaveSeconds = 0;  // ... after so long
  Held before;              // what the process held when it began

  // The call that failed, and leaving, each.
  bool tookLessThan(int ms) const { return std::max(loop.seconds, leaveSeconds) * 1e3 < ms; }
  std::string text() const;
};

// Under a launcher: joins the group that the environment names. For one rank of a process.
RankEnd joinAndLoop(const LoopSettings& settings, const moeConfig_t& config, Arena& arena);

constexpr int kMarginMs = 3000;  // for what takes longer on a busy machine

// Whether the sentence is about this rank.
bool namesRank(const std::string& sentence, int rank);
bool namesAnotherRank(const std::string& sentence, int rank, int nranks);

}  // namespace moe::test
