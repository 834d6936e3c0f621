// The code of the LL steps whose warps are blocks: rows that stay in their slots, rows that go to places, and rows that
// land. A step of few tokens waits for instructions, so what the usual dispatches do not need has kernels of its own.
// Two ways through one kernel took 1.3 us longer.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ll/plain_coded.h"
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
    LlPlacedDispatch<Warp, RowCast::none, false>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llPlacedMore> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlacedDispatch<Warp, RowCast::none, true>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llPlacedFp8> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlacedDispatch<Warp, RowCast::fp8, true>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llPlacedCast> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlacedDispatch<Warp, RowCast::any, true>::run(warp, p, w);
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
    LlPlacedCombine<Warp, RowWeights::none>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llPlacedWeighted> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlacedCombine<Warp, RowWeights::kept>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llWeightsCombine> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlacedCombine<Warp, RowWeights::brought>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llSlotCoded> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlainCoded<Warp, false>::run(warp, p, w);
  }
};

template <>
struct StepCode<Step::llPlacedCoded> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlPlainCoded<Warp, true>::run(warp, p, w);
  }
};

}  // namespace moe
