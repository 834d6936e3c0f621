// Simulated worlds. One seed gives a scenario, the mishaps of the simulator itself (death, leave, abort) and the
// verdict.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "support/programs/scenario.h"

namespace moe::sim {

// The event that happens in a world. `any` draws one, which is mostly nothing. `recover`: as abort, but the ranks go
// on. `loss`: as recover, but some ranks die, and the others go on without them.
enum class Mishap {
  any,
  nothing,
  death,
  leave,
  abort,
  capacity,
  badIndex,
  twice,
  stranger,
  rowSize,
  unready,
  recover,
  loss
};

struct Verdict {
  std::string wrong;  // empty if the world behaved as it must
  std::string text;   // the description of the world
  std::uint64_t events = 0;
  int operations = 0, faults = 0;  // as the scenario has them
  std::map<Step, int> lookUps;     // Outcome::lookUps
};

Verdict runWorld(std::uint64_t seed, test::Protocol protocol, Mishap mishap, bool trace,
                 const test::ScenarioLimits& limits = {});

}  // namespace moe::sim
