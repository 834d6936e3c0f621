// The code of the HT dispatches: at once, in waves, or over rails; with plain rows or rows that are cast.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ht/dispatch_rails.h"

namespace moe {

MOE_HOST_DEVICE constexpr bool isHtDispatch(const StepRow& row) {
  return row.family == StepFamily::htDispatch || row.family == StepFamily::cast;
}

template <Step kStep>
requires(isHtDispatch(rowOf(kStep))) struct StepCode<kStep> {
  static constexpr StepRow kRow = rowOf(kStep);
  static constexpr bool kInWaves = kRow.spread != Spread::once;

  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    if constexpr (kRow.spread == Spread::rails) {
      HtDispatchRails<kRow.coded(), Warp>(warp, p, w).run();
    } else {
      runPart<Duty::all>(warp, p, {w, w});
    }
  }
  // Runs one warp's part of a divided step, according to its duty.
  template <Duty kDuty, class Warp>
  MOE_LANES static void runPart(const Warp& warp, const StepParams& p, const Crew& crew) {
    HtDispatch<HtKind{kInWaves, kDuty, kRow.coded()}, Warp>(warp, p, crew).run();
  }
};

}  // namespace moe
