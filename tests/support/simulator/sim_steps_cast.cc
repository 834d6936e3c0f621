#include "device/kernels/ht_dispatch_steps.h"
#include "support/simulator/sim_steps.h"
#include "support/simulator/sim_warp.h"

bool moe::sim::runCast(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep<StepFamily::cast>(SimWarp(simulator), step, params, warp, movers);
}
