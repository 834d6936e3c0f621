// The opened port of an adapter: its context, protection domain, completion queue and limits; and the window as the
// adapter sees it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "topology/rdma_plan.h"
#include "transport/rdma/gpu_driver.h"
#include "transport/rdma/library.h"
#include "transport/remote.h"

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

// The window, registered with an adapter.
//
// It is registered once, with strict order: peers' writes land in their order, so a word shows that the bytes before it
// have arrived. Relaxed order (IBV_ACCESS_RELAXED_ORDERING) may be faster on some machines. It would only suit rows,
// and words would then need their own key: a second, strict registration of the window. Cards have both keys for that.
// registerWindow is the only place that decides, and for now both keys are the same.
struct WindowKeys {
  std::uint32_t local = 0;
  std::uint32_t data = 0;
  std::uint32_t word = 0;
};

struct WindowRegion {
  MemoryRegion region;
  WindowKeys keys;
  std::string how;  // "host memory", "dma-buf", "peer memory"
};

// Throws an Error that says what is missing.
WindowRegion registerWindow(const Adapter& adapter, const RemoteSetup& setup);

// For GPU memory: as a dma-buf, else by the driver's peer memory.
WindowRegion registerGpuWindow(const Adapter& adapter, const RemoteSetup& setup, const GpuDriver& driver);

}  // namespace moe::verbs
