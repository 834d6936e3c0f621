// Memory of the GPU, and memory that a GPU reaches, for the cuda backend and windows.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/address_range.h"
#include "backend/backend.h"
#include "backend/snapshot.h"
#include "backend/window_port.h"

namespace moe {

// Zeroed, and aligned to 256 bytes. Uses the caller's allocator if there is one (`kind` is a moeMemory value),
// otherwise cudaMalloc.
Memory allocateDevice(std::size_t bytes, const Allocator& allocator, int kind, int device);
// Stores zeros, and waits for that. Throws moeCudaError.
void clearDevice(std::uint8_t* memory, std::size_t bytes, int device);
Memory allocatePinned(std::size_t bytes, int device);

// The handles of memory that processes share. The descriptor keeps the memory alive.
struct ExportedMemory {
  Fd fd;
  std::optional<FabricHandle> fabric;  // nothing: the range was reserved without
};

// Addresses for memory that processes map by a handle (CUDA's virtual memory management). A mapping keeps the memory
// alive, so it may outlive its owner.
class DeviceRange : public AddressRange {
 public:
  // Maps fresh memory, which is not cleared, into the range. Throws moeCudaError, and leaves the range without memory.
  virtual ExportedMemory mapNew() = 0;
};

// A range for at least `bytes` bytes, without memory. Its size is a multiple of the device's granularity. `inFabric`:
// its memory also has handles of the fabric. NULL, with the reason in `why`, where device or driver cannot allocate or
// export such memory.
std::shared_ptr<DeviceRange> reserveDevice(std::size_t bytes, int device, bool inFabric, std::string* why);

// The same for the memory of another process, whose size its owner has told. Throws moeCudaError; `whose` names the
// memory.
std::shared_ptr<DeviceRange> reserveForPeer(std::size_t bytes, int device, const std::string& whose);

// A handle of the fabric for a little memory, by which other processes see whether they can import memory of this one.
// The memory lives as long as the result. NULL, with the reason in `why`, where such a handle cannot be made. The
// device's attribute does not tell: without a channel of the IMEX service the driver refuses.
std::shared_ptr<const FabricHandle> makeFabricSample(int device, std::string* why);
// Why memory cannot be imported by its handle; empty: it can.
std::string whyNotImported(const FabricHandle& handle, int device);

// Lets kernels reach pages of host memory that is not CUDA's: see Backend::shareWithSteps.
Memory shareHostPages(void* begin, std::size_t bytes, HostPages kind, int device);

// Copies of device memory that kernels may be writing, and readings of their clock.
std::unique_ptr<Snapshot> makeCudaSnapshot(const std::uint64_t* memory, std::size_t bytesMax, int device);

// Readers and writers of a window in GPU memory. Each has its own stream and pinned memory.
std::unique_ptr<WindowReader> makeCudaReader(const std::uint8_t* window, int device);
std::unique_ptr<WindowWriter> makeCudaWriter(std::uint8_t* window, int device);

}  // namespace moe
