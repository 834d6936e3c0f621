#include "support/programs/spoil_call.h"

#include "support/base/index.h"

namespace moe::test {

Fault shrinkOutput(DispatchCase& config, const Arrivals& arrivals, int culprit, Rng& rng) {
  if (config.staged[at(culprit)] && arrivals.tokens.size() > 1 && rng.coin()) {
    config.smallStaging = culprit;
    return Fault::staging;
  }
  const int rows = static_cast<int>(arrivals.layoutRows);
  config.capacity[at(culprit)] = rng.coin() ? rows - 1 : rng.below(rows);
  return Fault::capacity;
}

Fault lackRows(CombineOptions& options, int culprit, bool lowLatency, Rng& rng) {
  const bool prepared = options.inPlace.empty() || !options.inPlace[at(culprit)];
  if (options.grads && rng.oneIn(3)) {
    options.noGrads = culprit;
    return Fault::noGrads;
  }
  if (!lowLatency && prepared && rng.coin()) {
    options.smallStaging = culprit;
    return Fault::staging;
  }
  options.shortRows = culprit;
  options.noRows = rng.coin();
  return Fault::capacity;
}

}  // namespace moe::test
