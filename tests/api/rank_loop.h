// The work of ranks that are meant to fail: small steps in a row with checked sums, until one fails.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <string>

#include "support/api/api_world.h"
#include "support/base/held.h"

namespace moe::test {

struct LoopSettings {
  int rank = 0, nranks = 1;
  int mode = moeModeHt;
  bool cuda = false;
  int stepsMax = std::numeric_limits<int>::max();
  std::function<void(int)> beforeStep = [](int) {};
  std::function<moeResult_t(moeComm_t, int)> betweenSteps = [](moeComm_t, int) { return moeSuccess; };
  std::function<void(moeComm_t)> afterSteps = [](moeComm_t) {};
  std::function<void(bool)> inLibrary = [](bool) {};  // true before calls that may fail, false after them
};

struct LoopEnd {
  moeResult_t result = moeSuccess;
  int steps = 0;       // steps that succeeded
  long wrong = 0;      // wrong elements in their sums
  double seconds = 0;  // from the last checked step to the end
};

// How a rank ended that joined its group, made such steps and left.
struct RankEnd {
  LoopEnd loop;             // also says why it could not join
  std::string sentence;     // the failure's, if there was one
  bool left = false;        // moeCommDestroy succeeded
  double leaveSeconds = 0;  // time that moeCommDestroy took
  Held before;              // the resources that the process held when it began

  // Both the call that failed and leaving took less time than this.
  bool tookLessThan(int ms) const { return std::max(loop.seconds, leaveSeconds) * 1e3 < ms; }
  std::string text() const;
};

// Joins the group that the launcher's environment names, for one rank per process.
RankEnd joinAndLoop(const LoopSettings& settings, const moeConfig_t& config, Arena& arena);

constexpr int kMarginMs = 3000;  // for delays on a busy machine

// True if the sentence names this rank.
bool namesRank(const std::string& sentence, int rank);
bool namesAnotherRank(const std::string& sentence, int rank, int nranks);

}  // namespace moe::test
