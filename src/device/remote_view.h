// How steps reach the ranks of other domains: by the rings of threads that carry their puts out, or by the queues of an
// adapter, to which they post themselves.
#pragma once

#include "device/mlx5/put_queue.h"
#include "device/put_ring.h"

namespace moe {

inline constexpr int kPutRingsMax = 4;

struct RemoteView {
  PutRing ring[kPutRingsMax];  // ring `to % rings` serves rank `to`
  int rings;
  // [nranks], those of other domains, in memory that steps reach. If not NULL: there are no rings.
  const mlx5::PutQueue* queues = nullptr;

  MOE_HOST_DEVICE const PutRing& ringOf(int to) const { return ring[to % rings]; }
};

// Posts one put in either way. One thread.
template <class Memory>
MOE_LANES bool post(const Memory& memory, const RemoteView& view, const Put& put, const WaitLimit& limit) {
  if (view.queues == nullptr) return post(memory, view.ringOf(put.to), put, limit);
  int late = 0;
  return mlx5::postPuts(
      memory, view.queues, 1, [&](int) { return put; }, limit, &late);
}

}  // namespace moe
