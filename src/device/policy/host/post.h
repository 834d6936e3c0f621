// Posts one put without a step, for programs that use only a transport. For one thread.
#pragma once

#include "device/queue/mlx5/put_queue.h"
#include "device/view/remote_view.h"

namespace moe {

// Posts to a ring or to an adapter's queue, depending on the transport.
template <class Memory>
bool post(const Memory& memory, const RemoteView& view, const Put& put, const WaitLimit& limit) {
  if (view.queues == nullptr) return post(memory, view.ring[view.ringOf(put)], put, limit);
  return mlx5::postRun(
      memory, view.queues[view.connectionOf(put)], 0, 1, [&](int) { return put; }, limit);
}

}  // namespace moe
