// The code of the LL steps whose warps are blocks: rows that stay in their slots, rows that go to places, and rows that
// land.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ll/plain_combine.h"
#include "device/protocol/ll/plain_dispatch.h"

namespace moe {

template <>
struct StepCode<Step::llSlotDispatch> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlSlotDispatch<Warp>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llPlacedDispatch> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlacedDispatch<Warp>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llSlotCombine> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlSlotCombine<Warp>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llPlacedCombine> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlacedCombine<Warp>::run(warp, p, w);
  }
};

}  // namespace moe
