// The opened port of an adapter: its context, protection domain, completion queue and limits.
#pragma once

#include "base/error.h"
#include "topology/rdma_plan.h"
#include "transport/rdma/library.h"

namespace moe::verbs {

struct AdapterLimits {
  int queuePairs = 0;
  int requestsPerQueue = 0;
  int completions = 0;
  std::uint32_t messageBytes = 0;
};

class Adapter {
 public:
  // Throws an Error that names the adapter and the step.
  Adapter(std::shared_ptr<const Library> library, const topology::RdmaPlan& plan);

  const Library& library() const { return *library_; }
  ibv_context* context() const { return context_.get(); }
  ibv_pd* domain() const { return domain_.get(); }
  const ibv_port_attr& port() const { return port_; }
  const AdapterLimits& limits() const { return limits_; }
  const std::string& name() const { return name_; }

  CompletionQueue makeCompletionQueue(int entries) const;
  // A reliable connection whose sends complete in `completions`. It receives nothing but writes.
  QueuePair makeQueuePair(ibv_cq* completions, int requests) const;
  // "rxe0: cannot make a queue pair: <text of errno>"
  Error failure(const std::string& what, int error = errno) const;

 private:
  void open(const std::string& nic);
  void ask(int port);

  std::shared_ptr<const Library> library_;
  std::string name_;
  Context context_;
  ProtectionDomain domain_;
  ibv_port_attr port_{};
  AdapterLimits limits_;
};

}  // namespace moe::verbs
