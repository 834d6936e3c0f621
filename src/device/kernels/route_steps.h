// The code of the route, and of the steps that report on it.
#pragma once

#include "device/kernels/step_code.h"
#include "device/protocol/report/describe.h"
#include "device/protocol/report/tally.h"
#include "device/protocol/route/route.h"

namespace moe {

template <>
struct StepCode<Step::route> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    Route<Warp>(warp, p, w).run();
  }
};

template <>
struct StepCode<Step::describe> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    Describe<Warp>(warp, p, w).run();
  }
};

template <>
struct StepCode<Step::tally> {
  template <class Warp>
  MOE_LANES static void run(const Warp& warp, const StepParams& p, WarpIndex w) {
    if (w.index == 0) Tally<Warp>(warp, p).run();
  }
};

}  // namespace moe
