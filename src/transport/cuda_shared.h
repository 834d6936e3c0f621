// GPU memory that processes map through a file descriptor (CUDA's virtual memory management). A mapping keeps the
// memory alive, so it may outlive its owner, and addresses that come again are other memory.
#pragma once

#include <optional>

#include "backend/memory.h"
#include "base/fd.h"

namespace moe {

struct SharedDeviceMemory {
  Memory memory;
  std::size_t bytes;  // as it is mapped: a multiple of the device's granularity
  Fd fd;
};

// Not cleared. Nothing, with the reason in `why`, where device or driver cannot allocate or export such memory.
std::optional<SharedDeviceMemory> allocateSharedDevice(std::size_t bytes, int device, std::string* why);

// Maps such memory of another process for `device`. Throws moeCudaError; `whose` names the memory.
Memory mapSharedDevice(int fd, std::size_t bytes, int device, const std::string& whose);

}  // namespace moe
