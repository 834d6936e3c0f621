// The few calls of the CUDA driver that RDMA needs, loaded at run time: a GPU's place in the PCI tree, and its memory
// as a dma-buf. Builds without CUDA have it too, but do not call it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "topology/dynamic_library.h"

namespace moe::verbs {

struct GpuDriver {
  using Result = int;
  using Device = int;
  using Context = void*;

  // Throws moeUnsupported if there is no driver or it is too old.
  static GpuDriver load(const std::string& name = "libcuda.so.1");

  explicit GpuDriver(const std::string& name) : library(name.c_str()) {}

  // "0000:17:00.0"; empty if the driver does not say. `ordinal` is the CUDA runtime's.
  std::string busIdOf(int ordinal) const;

  // Whether kernels of this GPU see what adapters write to its memory in the order of arrival.
  bool ordersWrites(int ordinal) const;

  // A descriptor for `bytes` of the GPU's memory from `begin` on. Both are multiples of the page size. Returns an empty
  // Fd if the driver cannot make one, and `why` then has the reason.
  Fd exportMemory(int ordinal, std::uint64_t begin, std::size_t bytes, std::string* why) const;

  // From now on, copies and memsets on the allocation at `address` are complete when their call returns. CUDA lets some
  // of them return earlier, and an adapter would then read old bytes. Returns false if the driver cannot do that for
  // this kind of memory.
  bool finishCopiesInTime(int ordinal, std::uint64_t address) const;

  topology::DynamicLibrary library;
  Result (*initialize)(unsigned) = nullptr;
  Result (*device)(Device*, int) = nullptr;
  Result (*busId)(char*, int, Device) = nullptr;
  Result (*attribute)(int*, int, Device) = nullptr;
  Result (*retainContext)(Context*, Device) = nullptr;
  Result (*releaseContext)(Device) = nullptr;
  Result (*pushContext)(Context) = nullptr;
  Result (*popContext)(Context*) = nullptr;
  Result (*setPointerAttribute)(const void*, int, unsigned long long) = nullptr;
  Result (*handleOf)(void*, unsigned long long, std::size_t, int,
                     unsigned long long) = nullptr;  // since 11.7; or NULL

 private:
  template <class Call>
  Result inContext(int ordinal, Call call) const;
};

}  // namespace moe::verbs
