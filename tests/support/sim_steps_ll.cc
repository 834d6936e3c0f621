#include "device/kernels/ll_steps.h"
#include "support/sim_steps.h"
#include "support/sim_warp.h"

bool moe::sim::runLl(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep(LlSteps{}, SimWarp(simulator), step, params, warp, movers);
}
