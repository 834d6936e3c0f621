// moe_perf --tune: the number of tokens from which HT is faster than LL, as a tuning file of the library. These parts
// are pure. moe_perf.cc measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/config/mode_limits.h"
#include "perf/moe_perf/exchange.h"
#include "perf/moe_perf/options.h"
#include "perf/moe_perf/provenance.h"

namespace moe::perf {

// The median time of a step with this many tokens per rank, in microseconds.
struct TunePoint {
  int tokens;
  double ll, ht;
};

// The most tokens for which AUTO should take LL; 0: it should always take HT. The result has the least sum over all
// points of what the chosen mode loses, relative to the better one. Near the crossing the modes differ by less than
// their noise, so a rule that looks at single points would be arbitrary. `points` are in ascending order.
int tokensOfLl(const std::vector<TunePoint>& points);

// The row of moe::ModeLimits for these ranks, as the library chooses it.
ModeSetup setupOf(const Machine& machine);

struct Tuning {
  const Options& options;
  const Provenance& provenance;
  const Machine& machine;
  std::int32_t rowBytesMax;  // the communicator's
  std::vector<TunePoint> points;
};

// "tokens  LL  HT", and a line below it.
std::string tuneTitle();
std::string tuneText(const TunePoint& point);

// "host-shared flat 2097152", the line of the tuning file with the threshold.
std::string tunedLine(const Tuning& tuning);

// The whole file.
std::string tuningFileText(const Tuning& tuning);

}  // namespace moe::perf
