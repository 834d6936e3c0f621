// The few calls of the CUDA driver that RDMA needs, looked for at run time: where a GPU hangs, and its memory as a
// dma-buf. Also in builds without CUDA, where nothing calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "topology/dynamic_library.h"

namespace moe::verbs {

class GpuDriver {
 public:
  // Throws moeUnsupported if there is no driver or it is too old.
  static GpuDriver load();

  // "0000:17:00.0", or empty if the driver does not say. `ordinal` as the CUDA runtime counts.
  std::string busIdOf(int ordinal) const;

  // Whether kernels of this GPU see what adapters write to its memory in the order in which it comes.
  bool ordersWrites(int ordinal) const;

  // A descriptor for `bytes` of the GPU's memory from `begin` on, both multiples of the page size. Empty if the driver
  // cannot make one; then `why` says so.
  Fd exportMemory(int ordinal, std::uint64_t begin, std::size_t bytes, std::string* why) const;

 private:
  using Result = int;
  using Device = int;
  using Context = void*;

  topology::DynamicLibrary library_{"libcuda.so.1"};
  Result (*initialize_)(unsigned) = nullptr;
  Result (*device_)(Device*, int) = nullptr;
  Result (*busId_)(char*, int, Device) = nullptr;
  Result (*attribute_)(int*, int, Device) = nullptr;
  Result (*retainContext_)(Context*, Device) = nullptr;
  Result (*releaseContext_)(Device) = nullptr;
  Result (*pushContext_)(Context) = nullptr;
  Result (*popContext_)(Context*) = nullptr;
  Result (*handleOf_)(void*, unsigned long long, std::size_t, int, unsigned long long) = nullptr;  // since 11.7
};

}  // namespace moe::verbs
