#include "device/kernels/slot_steps.h"
#include "support/simulator/sim_steps.h"
#include "support/simulator/sim_warp.h"

bool moe::sim::runSlots(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep<StepFamily::slots>(SimWarp(simulator), step, params, warp, movers);
}
