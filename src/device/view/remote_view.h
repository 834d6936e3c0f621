// How steps reach the ranks of other domains. They use the rings of threads that carry their puts, or post puts to the
// queues of an adapter themselves.
#pragma once

#include "device/queue/put.h"

namespace moe {

inline constexpr int kPutRingsMax = 4;

struct PutHelper;  // device/queue/put_helper.h
namespace mlx5 {
struct PutQueue;  // device/queue/mlx5/put_queue.h
}

struct RemoteView {
  PutRing ring[kPutRingsMax];
  int rings;
  int connections = 1;  // connections with each rank
  // [nranks][connections] queues of ranks in other domains, in memory that steps access. NULL: puts go through rings.
  const mlx5::PutQueue* queues = nullptr;
  // The thread that steps on a CPU may help; NULL: none. A step that posts to the rings without helping wakes the
  // threads through it.
  const PutHelper* helper = nullptr;

  // All puts of a connection go through one ring.
  MOE_HOST_DEVICE int connectionOf(const Put& put) const { return put.to * connections + put.connection % connections; }
  MOE_HOST_DEVICE int ringOf(const Put& put) const { return connectionOf(put) % rings; }
};

}  // namespace moe
