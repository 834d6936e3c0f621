#include "device/kernels/coded_combine_steps.h"
#include "support/sim_steps.h"
#include "support/sim_warp.h"

bool moe::sim::runCodedCombine(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers) {
  return runNamedStep(CodedCombineSteps{}, SimWarp(simulator), step, params, warp, movers);
}
