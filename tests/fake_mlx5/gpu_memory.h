// Moves bytes to and from GPU memory for the software adapter while kernels run that wait for it. It uses a stream that
// waits for no other, through memory that was pinned when the memory was registered. It allocates nothing later,
// because that may wait for a kernel. It uses the CUDA driver if the program has loaded it, and does not load it.
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

// Nothing, if the address is not GPU memory. Called by the thread that registers; what it returns is used by the
// engine.
std::shared_ptr<GpuMemory> openGpuMemory(std::uint64_t address);

}  // namespace moe::test
