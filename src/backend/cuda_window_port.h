// Readers and writers of a window in GPU memory: each has a stream and pinned memory of its own.
#pragma once

#include <memory>

#include "backend/window_port.h"

namespace moe {

std::unique_ptr<WindowReader> makeCudaReader(const std::uint8_t* window, int device);
std::unique_ptr<WindowWriter> makeCudaWriter(std::uint8_t* window, int device);

}  // namespace moe
