// The window as the adapter sees it.
//
// It is registered once, with strict order: peers' writes land in their order, so a word shows that the bytes before it
// have arrived. Relaxed order (IBV_ACCESS_RELAXED_ORDERING) may be faster on some machines. It would only suit rows,
// and words would then need their own key: a second, strict registration of the window. Cards have both keys for that.
// registerWindow is the only place that decides, and for now both keys are the same.
#pragma once

#include <string>

#include "transport/rdma/adapter.h"
#include "transport/rdma/gpu_driver.h"
#include "transport/remote.h"

namespace moe::verbs {

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
