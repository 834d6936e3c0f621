// Posts one put without a step, for programs that use a transport alone. One thread.
#pragma once

#include "device/queue/mlx5/put_queue.h"
#include "device/view/remote_view.h"

namespace moe {

// To a ring or to an adapter's queue, whichever the transport has.
template <class Memory>
bool post(const Memory& memory, const RemoteView& view, const Put& put, const WaitLimit& limit) {
  if (view.queues == nullptr) return post(memory, view.ring[view.ringOf(put)], put, limit);
  return mlx5::postRun(
      memory, view.queues[view.connectionOf(put)], 0, 1, [&](int) { return put; }, limit);
}

}  // namespace moe
