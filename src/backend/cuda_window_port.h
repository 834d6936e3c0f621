// Readers and writers of a window in GPU memory. Each has its own stream and pinned memory.
#pragma once

#include <memory>

#include "backend/window_port.h"

namespace moe {

std::unique_ptr<WindowReader> makeCudaReader(const std::uint8_t* window, int device);
std::unique_ptr<WindowWriter> makeCudaWriter(std::uint8_t* window, int device);

}  // namespace moe
