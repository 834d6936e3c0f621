// The GPU policy of warps beside those that move rows in bulk: they copy what stays here, through registers, and have
// enough of them for more loads in flight. What else a warp does is CudaWarp's.
#pragma once

#include "device/cuda_warp.h"

namespace moe {

class CudaHomeWarp : public CudaWarp {
 public:
  template <class JobOf, class SinkOf>
  MOE_LANES void streamRows(int n, int, JobOf jobOf, SinkOf sinkOf) const {
    stream<false, true>(n, pairsOf(jobOf), pairSinksOf(sinkOf));
  }
  template <class JobOf, class SinkOf>
  MOE_LANES void streamPairs(int n, int, JobOf jobOf, SinkOf sinkOf) const {
    stream<false, true>(n, jobOf, sinkOf);
  }
};

}  // namespace moe
