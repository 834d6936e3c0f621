// How steps reach the ranks of other domains: by the rings of threads that carry their puts out, or by the queues of an
// adapter, to which they post themselves.
#pragma once

#include "device/queue/mlx5/put_queue.h"

namespace moe {

inline constexpr int kPutRingsMax = 4;

struct PutHelper;  // device/queue/put_helper.h

struct RemoteView {
  PutRing ring[kPutRingsMax];
  int rings;
  int connections = 1;  // with each rank
  // [nranks][connections], those with other domains, in memory that steps reach. If not NULL: there are no rings.
  const mlx5::PutQueue* queues = nullptr;
  // What steps on a CPU may help; NULL: nobody. Who posts to the rings there and does not help wakes the threads by it.
  const PutHelper* helper = nullptr;

  // Puts of one connection go by one ring.
  MOE_HOST_DEVICE int connectionOf(const Put& put) const { return put.to * connections + put.connection % connections; }
  MOE_HOST_DEVICE int ringOf(const Put& put) const { return connectionOf(put) % rings; }
};

// Posts one put without a step, for programs that use a transport alone: to a ring or to an adapter's queue, whichever
// the transport has. One thread.
template <class Memory>
bool post(const Memory& memory, const RemoteView& view, const Put& put, const WaitLimit& limit) {
  if (view.queues == nullptr) return post(memory, view.ring[view.ringOf(put)], put, limit);
  return mlx5::postRun(
      memory, view.queues[view.connectionOf(put)], 0, 1, [&](int) { return put; }, limit);
}

}  // namespace moe
