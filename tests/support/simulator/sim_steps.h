// The steps in the simulator, one file per family, so that a planted bug recompiles only what it concerns
// (sim/run_mutants.py). False if the step is of another family.
#pragma once

#include "device/view/steps.h"

namespace moe::sim {

class Simulator;

bool runRoute(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers);
bool runHtDispatch(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers);
bool runCast(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers);
bool runCombine(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers);
bool runCodedCombine(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers);
bool runLl(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers);
bool runSlots(Simulator& simulator, Step step, const StepParams& params, WarpIndex warp, int movers);

}  // namespace moe::sim
