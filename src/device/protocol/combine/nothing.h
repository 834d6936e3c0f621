// The sums of an HT combine for which no rows count: the biases, or zeros, and no gradients. The arrays are the
// caller's on this rank, so no flag is needed. Code of its own, as it is seldom needed.
#pragma once

#include "device/policy/contract.h"
#include "device/protocol/core/shares.h"

namespace moe {

template <Moves Warp>
MOE_SELDOM void sumNothing(Warp warp, const StepParams& p, WarpIndex w) {
  const CombineArgs& a = p.combine;
  const Slice slice = sliceOf(a.tokens, w);
  const int quads = static_cast<int>(a.rowBytes / sizeof(Quad));
  MOE_ROLLED
  for (std::int64_t token = slice.begin; token < slice.begin + slice.count; ++token) {
    warp.forEach(quads, [&](int i) {
      const std::int64_t at = token * quads + i;
      withRowType(a.rowType, [&](auto type) {
        Accumulator<decltype(type)> sum;
        for (const std::uint8_t* bias : {a.bias0, a.bias1}) {
          if (bias != nullptr) sum.template add<false>(reinterpret_cast<const Quad*>(bias)[at], 1.0f);
        }
        reinterpret_cast<Quad*>(a.out)[at] = sum.rounded();
      });
    });
  }
  if (a.outWeightGrads == nullptr) return;
  const std::int64_t first = std::int64_t{slice.begin} * p.handle.topk;
  warp.forEach(slice.count * p.handle.topk, [&](int i) { a.outWeightGrads[first + i] = 0.0f; });
}

}  // namespace moe
