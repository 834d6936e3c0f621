// The difference between the wall clocks of two hosts. Collectives of both hosts show it, because no rank leaves a
// collective before all have entered it. Each round narrows the bounds, to about the time that a collective takes.
// Ranks of one kernel share a clock and do not need this.
#pragma once

#include <cstdint>

namespace moe {

// Added to this rank's wall clock, it gives rank 0's. In ns.
struct ClockOffset {
  std::int64_t offsetNs = 0, errorNs = 0;
};

// When a rank entered and left a collective, by its own wall clock.
struct Round {
  std::int64_t entered = 0, left = 0;
};

namespace bootstrap {
class Bootstrap;
}

// Collective: a few rounds. Throws as they do.
ClockOffset measureClock(bootstrap::Bootstrap& group);

class ClockBounds {
 public:
  void add(const Round& mine, const Round& ofRank0);
  ClockOffset offset() const;

 private:
  std::int64_t least_ = INT64_MIN / 4, most_ = INT64_MAX / 4;
};

}  // namespace moe
