// Owners of device and pinned memory, zeroed and aligned to 256 bytes.
#pragma once

#include "backend/backend.h"

namespace moe {

// Uses the caller's allocator if there is one (`kind` is a moeMemory value), otherwise cudaMalloc.
Memory allocateDevice(std::size_t bytes, const Allocator& allocator, int kind, int device);
Memory allocatePinned(std::size_t bytes, int device);

}  // namespace moe
