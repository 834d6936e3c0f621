// Simulated worlds: a scenario, the simulator's own troubles (death, abort) and the verdict, from one seed.
#pragma once

#include <cstdint>
#include <string>

#include "support/scenario.h"

namespace moe::sim {

// What happens to a world. `any` draws one, mostly nothing.
enum class Mishap { any, nothing, death, leave, abort, capacity, badIndex, twice, stranger, rowSize };

struct Verdict {
  std::string wrong;  // empty: all is as it must be
  std::string text;   // the world
  std::uint64_t events = 0;
};

Verdict runWorld(std::uint64_t seed, test::Protocol protocol, Mishap mishap, bool trace);

}  // namespace moe::sim
