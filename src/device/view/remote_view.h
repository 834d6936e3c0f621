// How steps reach the ranks of other domains: by the rings of threads that carry their puts out, or by the queues of an
// adapter, to which they post themselves.
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
  int connections = 1;  // with each rank
  // [nranks][connections], those with other domains, in memory that steps reach. If not NULL: there are no rings.
  const mlx5::PutQueue* queues = nullptr;
  // What steps on a CPU may help; NULL: nobody. Who posts to the rings there and does not help wakes the threads by it.
  const PutHelper* helper = nullptr;

  // Puts of one connection go by one ring.
  MOE_HOST_DEVICE int connectionOf(const Put& put) const { return put.to * connections + put.connection % connections; }
  MOE_HOST_DEVICE int ringOf(const Put& put) const { return connectionOf(put) % rings; }
};

}  // namespace moe
