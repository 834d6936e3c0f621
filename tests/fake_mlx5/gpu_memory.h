// Moves bytes to and from GPU memory for the software adapter while kernels run that wait for it. The copies use a
// stream that waits for no other stream, and memory that was pinned at registration. Nothing is allocated later,
// because an allocation may wait for a kernel. The CUDA driver is used if the program has loaded it; this file never
// loads it.
#pragma once

#include <cstdint>
#include <memory>

namespace moe::test {

class GpuMemory {
 public:
  virtual ~GpuMemory() = default;
  virtual bool read(void* to, std::uint64_t from, std::uint64_t bytes) = 0;
  virtual bool write(std::uint64_t to, const void* from, std::uint64_t bytes) = 0;
};

// Returns null if the address is not GPU memory. The registering thread calls this, and the engine uses the result.
std::shared_ptr<GpuMemory> openGpuMemory(std::uint64_t address);

}  // namespace moe::test
