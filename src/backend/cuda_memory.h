// Owners of device and pinned memory, zeroed and aligned to 256 bytes.
#pragma once

#include "backend/backend.h"

namespace moe {

// Takes it from the caller's allocator if there is one (`kind` is a moeMemory value), else from cudaMalloc.
Memory allocateDevice(std::size_t bytes, const Allocator& allocator, int kind, int device);
Memory allocatePinned(std::size_t bytes, int device);

}  // namespace moe
