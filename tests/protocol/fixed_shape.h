// A scenario with a given shape. It runs route, dispatch and combine several times, so that both parities are used and
// acknowledged more than once.
#pragma once

#include "support/programs/scenario.h"

namespace moe::test {

struct FixedShape {
  int ranks = 2;
  int domainSize = 0;  // 0: one domain
  int experts = 4;
  int topk = 2;
  Layout layout = Layout::flat;
  bool lowLatency = false;
  int tokens = 5;
  int rowBytes = 64;
  int sideBytes = 0;
  int parts = 1;  // per row
  int warps = 1;
  int rowType = kBf16;
  int alignment = 1;
  bool wideIndex = false;
  bool split = false;         // dispatch and combine in two phases
  bool landing = true;        // LL rows land where they can
  bool routesInside = false;  // LL: the first dispatch of a round routes
  bool inSlots = false;       // LL: RANK_MAJOR rows stay in their slots, mostly
  bool combineFirst = false;  // HT: combine before dispatch, as in a backward pass
  bool timed = false;         // operations note how long they wait, which is added up after each
  bool awaitsRows = false;    // layouts with rows per expert: combines start before their rows are made
  int rounds = 3;
};

Scenario makeFixedScenario(const FixedShape& shape, std::uint64_t seed);

}  // namespace moe::test
