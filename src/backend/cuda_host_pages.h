// Lets kernels reach pages of host memory that is not CUDA's.
#pragma once

#include "backend/backend.h"

namespace moe {

// See Backend::shareWithSteps.
Memory shareHostPages(void* begin, std::size_t bytes, HostPages kind, int device);

}  // namespace moe
