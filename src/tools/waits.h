// Finds from the dumps of a job's ranks which rank kept which other rank waiting. These are pure functions.
#pragma once

#include <string>
#include <vector>

#include "tools/dump_file.h"

namespace moe::tools {

// How long ranks waited: in each step, for the rank that was awaited longest.
struct WaitTable {
  int nranks = 0;
  std::vector<double> seconds;  // [rank][awaited rank]
  std::vector<double> span;     // [rank] seconds from its first step to when it was asked; 0: there is no dump
  bool known = false;           // true if a step of any rank names the rank that it waited for

  double of(int rank, int awaited) const {
    return seconds[static_cast<std::size_t>(rank) * static_cast<std::size_t>(nranks) +
                   static_cast<std::size_t>(awaited)];
  }
  // The time that all other ranks waited for `awaited`, divided by their time in total.
  double shareFor(int awaited) const;
};
WaitTable waitsOf(const std::vector<RankDump>& dumps);

// How much later than the first rank each rank began the steps that all dumps hold, on average. [rank], in seconds;
// below 0: not known.
std::vector<double> latenessOf(const std::vector<RankDump>& dumps);

struct Verdict {
  int rank = -1;  // -1: nobody stands out
  std::string sentence;
};
// The slowest rank: the others waited for it much longer than for any other rank. Where waits are not known, it is the
// rank that begins its steps last.
Verdict slowestRank(const std::vector<RankDump>& dumps);

}  // namespace moe::tools
