#include "device/kernels/route_steps.h"
#include "support/simulator/sim_steps.h"
#include "support/simulator/sim_warp.h"

bool moe::sim::runRoute(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep<StepFamily::route>(SimWarp(simulator), step, params, warp, movers);
}
