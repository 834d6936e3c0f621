// The steps that a backend can launch, which of them an operation takes, and which kernels there are of each.
#pragma once

#include "device/view/views.h"

namespace moe {

enum class Step {
  route,
  htDispatch,
  htDispatchWaves,
  htDispatchRails,
  htCast,
  htCastWaves,
  htCastRails,
  llDispatch,
  llRouteDispatch,
  llCombine,
  combine,
  combineWaves,
  combineRails,
  llCombineCoded,
  combineCoded,
  combineWavesCoded,
  combineRailsCoded,
  describe,
  tally
};
inline constexpr Step kSteps[] = {Step::route,
                                  Step::htDispatch,
                                  Step::htDispatchWaves,
                                  Step::htDispatchRails,
                                  Step::htCast,
                                  Step::htCastWaves,
                                  Step::htCastRails,
                                  Step::llDispatch,
                                  Step::llRouteDispatch,
                                  Step::llCombine,
                                  Step::combine,
                                  Step::combineWaves,
                                  Step::combineRails,
                                  Step::llCombineCoded,
                                  Step::combineCoded,
                                  Step::combineWavesCoded,
                                  Step::combineRailsCoded,
                                  Step::describe,
                                  Step::tally};

// Steps that compute rather than move rows: on a GPU each of their warps is a whole block.
MOE_HOST_DEVICE constexpr bool takesBlocks(Step step) {
  return step == Step::route || step == Step::describe || step == Step::tally;
}

// Operations of which there is local work to do, or that go over rails: the same on all ranks. Others are one wave. How
// many is a compile-time constant of a step, so that one wave costs nothing.
MOE_HOST_DEVICE bool goesInWaves(const HandleView& h) {
  return h.lowLatency == 0 && (expertRows(h) || h.domains > 1);
}

// Combines of rows that are made here, and so may land at their owners. The same on all ranks.
MOE_HOST_DEVICE bool combineLands(const HandleView& h) {
  return h.lowLatency != 0 && h.layout != Layout::rankMajor;
}

// `casts`: rows are cast on their way, or have payloads. The steps for that are steps of their own, so that others
// carry nothing of it.
inline Step dispatchStep(const HandleView& h, bool casts) {
  if (h.lowLatency != 0) return Step::llDispatch;
  if (h.hasRails()) return casts ? Step::htCastRails : Step::htDispatchRails;
  if (goesInWaves(h)) return casts ? Step::htCastWaves : Step::htDispatchWaves;
  return casts ? Step::htCast : Step::htDispatch;
}
// `landing`: whether rows land where they can. All ranks of a communicator have the same. `coded`: rows travel in a
// wire format.
inline Step combineStep(const HandleView& h, bool landing, bool coded = false) {
  if (landing && combineLands(h)) return coded ? Step::llCombineCoded : Step::llCombine;
  if (h.hasRails()) return coded ? Step::combineRailsCoded : Step::combineRails;
  if (goesInWaves(h)) return coded ? Step::combineWavesCoded : Step::combineWaves;
  return coded ? Step::combineCoded : Step::combine;
}

// Whether some warps may move rows, and others describe them.
MOE_HOST_DEVICE constexpr bool isDivided(Step step) {
  return step == Step::htDispatch;
}
// Kernels with bulk copies, of one domain and, `far`, of several.
MOE_HOST_DEVICE constexpr bool hasBulkKernel(Step step, bool far) {
  if (far) return step == Step::htDispatchRails;
  return step == Step::htDispatch || step == Step::htDispatchWaves || step == Step::htCastWaves ||
         step == Step::combine || step == Step::combineWaves;
}

// Steps that wait for nobody, and so for nothing that a clock could tell.
MOE_HOST_DEVICE constexpr bool neverWaits(Step step) {
  return step == Step::describe || step == Step::tally;
}

// Which kernels there are: of one domain, and of several.
MOE_HOST_DEVICE constexpr bool hasRails(Step step) {
  return step == Step::htDispatchRails || step == Step::htCastRails || step == Step::combineRails ||
         step == Step::combineRailsCoded;
}
MOE_HOST_DEVICE constexpr bool hasFarKernel(Step step) {
  const bool ll = step == Step::llDispatch || step == Step::llRouteDispatch || step == Step::llCombine ||
                  step == Step::llCombineCoded;
  return step == Step::route || ll || step == Step::combine || step == Step::combineCoded || hasRails(step);
}
MOE_HOST_DEVICE constexpr bool hasNearKernel(Step step) {
  return !hasRails(step);
}

MOE_HOST_DEVICE constexpr bool isCodedCombine(Step step) {
  return step == Step::llCombineCoded || step == Step::combineCoded || step == Step::combineWavesCoded ||
         step == Step::combineRailsCoded;
}
MOE_HOST_DEVICE constexpr bool isCast(Step step) {
  return step == Step::htCast || step == Step::htCastWaves || step == Step::htCastRails;
}
MOE_HOST_DEVICE constexpr bool isCombine(Step step) {
  return step == Step::llCombine || step == Step::combine || step == Step::combineWaves || step == Step::combineRails ||
         isCodedCombine(step);
}

}  // namespace moe
