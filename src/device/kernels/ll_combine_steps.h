// The code of the combines whose rows land at their owners, as they are or in a wire format.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/ll/combine.h"

namespace moe {

template <Step kStep>
requires(rowOf(kStep).lands) struct StepCode<kStep> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    LlCombine<Warp, rowOf(kStep).coded()>(warp, p, w).run();
  }
};

}  // namespace moe
