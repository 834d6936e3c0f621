// Device and pinned memory with owners. Zeroed, aligned to 256 bytes.
#pragma once

#include "backend/backend.h"

namespace moe {

// From the caller's allocator if there is one (`kind` is a moeMemory value), else from cudaMalloc.
Memory allocateDevice(std::size_t bytes, const Allocator& allocator, int kind, int device);
Memory allocatePinned(std::size_t bytes, int device);

}  // namespace moe
