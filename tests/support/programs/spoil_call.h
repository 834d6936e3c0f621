// Spoils the arguments of a dispatch or combine, for random worlds: one rank passes too little.
#pragma once

#include "support/base/rng.h"
#include "support/programs/operations.h"

namespace moe::test {

// Gives the culprit an output or a staging area that is too small for the rows that arrive there. Returns which.
Fault shrinkOutput(DispatchCase& config, const Arrivals& arrivals, int culprit, Rng& rng);

// Chooses the resource that the culprit lacks for the rows that had arrived there.
Fault lackRows(CombineOptions& options, int culprit, bool lowLatency, Rng& rng);

}  // namespace moe::test
