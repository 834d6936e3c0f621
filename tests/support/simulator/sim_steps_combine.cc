#include "device/kernels/combine_steps.h"
#include "support/simulator/sim_steps.h"
#include "support/simulator/sim_warp.h"

bool moe::sim::runCombine(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep<StepFamily::combine>(SimWarp(simulator), step, params, warp, movers);
}
