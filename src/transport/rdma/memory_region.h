// The window as the adapter sees it.
//
// It is registered once, and strictly: what peers write lands in the order in which they wrote it, so a word that is
// there says that the bytes before it are. Relaxed order (IBV_ACCESS_RELAXED_ORDERING) may be faster on some machines.
// It would be given to the rows alone, and then words need a key of their own: a second registration of the window,
// strict. Cards have both keys for that; registerWindow is the one place that decides, and for now both are the same.
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

// Of GPU memory: as a dma-buf, else by the driver's peer memory.
WindowRegion registerGpuWindow(const Adapter& adapter, const RemoteSetup& setup, const GpuDriver& driver);

}  // namespace moe::verbs
