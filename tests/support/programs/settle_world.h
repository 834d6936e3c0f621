// Recovers a world whose ranks have stopped, in place, as the library does (decision 0122).
#pragma once

#include <string>

#include "support/programs/scenario.h"

namespace moe::test {

// The fault of a handle whose route a recovery has made void.
inline constexpr HandleFault kVoidRoute{.fault = Fault::disagreement, .culprit = -1};

// No rank may run a step, and all stores must have landed. From here on all ranks but those of world.lost may run
// another program: drawAgain(). Returns an error if a flag goes back, or if flags differ between ranks; empty if there
// is none.
std::string settleWorld(Scenario& world);

}  // namespace moe::test
