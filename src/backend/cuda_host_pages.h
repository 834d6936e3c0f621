// Pages of host memory that is not CUDA's, made reachable to kernels.
#pragma once

#include "backend/backend.h"

namespace moe {

// See Backend::shareWithSteps.
Memory shareHostPages(void* begin, std::size_t bytes, HostPages kind, int device);

}  // namespace moe
