#include "device/kernels/ht_dispatch_steps.h"
#include "support/simulator/sim_steps.h"
#include "support/simulator/sim_warp.h"

bool moe::sim::runHtDispatch(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep<StepFamily::htDispatch>(SimWarp(simulator), step, params, warp, movers);
}
