// The code of the combines that read rows where they lie: at once, in waves, or over rails; with plain rows or rows in
// a wire format.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/combine/combine.h"

namespace moe {

MOE_HOST_DEVICE constexpr bool readsRows(const StepRow& row) {
  return row.combines() && !row.lands;
}

template <Step kStep>
requires(readsRows(rowOf(kStep))) struct StepCode<kStep> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    constexpr StepRow kRow = rowOf(kStep);
    if constexpr (kRow.spread == Spread::rails) {
      CombineRails<Warp, kRow.coded()>(warp, p, w).run();
    } else {
      Combine<kRow.spread == Spread::waves, Warp, kRow.coded()>(warp, p, w).run();
    }
  }
};

}  // namespace moe
