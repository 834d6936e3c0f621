// The few calls of the CUDA driver that RDMA needs, looked for at run time: where a GPU hangs, and its memory as a
// dma-buf. Also in builds without CUDA, where nothing calls it.
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

  // "0000:17:00.0", or empty if the driver does not say. `ordinal` as the CUDA runtime counts.
  std::string busIdOf(int ordinal) const;

  // Whether kernels of this GPU see what adapters write to its memory in the order in which it comes.
  bool ordersWrites(int ordinal) const;

  // A descriptor for `bytes` of the GPU's memory from `begin` on, both multiples of the page size. Empty if the driver
  // cannot make one; then `why` says so.
  Fd exportMemory(int ordinal, std::uint64_t begin, std::size_t bytes, std::string* why) const;

  // From now on a copy or memset on the allocation at `address` that is to be done when its call returns is done then:
  // CUDA lets some of them return earlier, and an adapter would read what was there before. False if the driver does
  // not do that for memory of this kind.
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
