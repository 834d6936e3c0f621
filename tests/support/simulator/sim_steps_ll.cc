#include "device/kernels/ll_steps.h"
#include "support/simulator/sim_steps.h"
#include "support/simulator/sim_warp.h"

bool moe::sim::runLl(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep<StepFamily::ll>(SimWarp(simulator), step, params, warp, movers);
}
