// Events that an adapter reports on its own: a port went down, a queue pair broke. The thread that serves the adapter
// polls it now and then.
#pragma once

#include <functional>
#include <optional>

#include "transport/rdma/adapter.h"
#include "transport/rdma/send_failure.h"

namespace moe::verbs {

// True for events after which puts no longer arrive. The others are only logged.
bool endsTheTransport(ibv_event_type type);

class EventWatch {
 public:
  // The rank that a queue pair leads to, or -1.
  using RankOf = std::function<int(std::uint32_t queuePair)>;

  // Makes the context's descriptor non-blocking. The adapter outlives this object.
  EventWatch(const Adapter& adapter, RankOf rankOf, int port);

  // The first failure among the events since the last call.
  std::optional<SendFailure> poll() const;

 private:
  std::optional<SendFailure> judge(const ibv_async_event& event) const;

  const Adapter& adapter_;
  RankOf rankOf_;
  int port_;
};

}  // namespace moe::verbs
