// Computes from its recorded steps how fast a rank works. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tools/dump_file.h"

namespace moe::tools {

inline double secondsOf(std::int64_t ns) {
  return static_cast<double>(ns) / 1e9;
}

// The sums of a rank's records.
struct Rates {
  double seconds = 0;  // time that the records cover
  double stepsPerSecond = 0;
  double bytesPerSecond = 0;   // bytes of the rows of this rank's tokens, each counted once per step
  double meanStepSeconds = 0;  // of the steps that have ended
};

inline Rates ratesOf(const RankDump& dump) {
  Rates rates;
  if (dump.steps.empty()) return rates;
  rates.seconds = std::max(secondsOf(dump.taken - dump.steps.front().begin), 1e-9);
  std::int64_t inSteps = 0, bytes = 0;
  int ended = 0;
  for (const DumpedStep& step : dump.steps) {
    bytes += step.tokens * step.rowBytes;
    if (step.end == 0) continue;
    inSteps += step.end - step.begin;
    ++ended;
  }
  rates.stepsPerSecond = static_cast<double>(dump.steps.size()) / rates.seconds;
  rates.bytesPerSecond = static_cast<double>(bytes) / rates.seconds;
  rates.meanStepSeconds = ended > 0 ? secondsOf(inSteps) / ended : 0;
  return rates;
}

}  // namespace moe::tools
