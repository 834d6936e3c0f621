// Replaces the ceilings in builds without CUDA.
#include <stdexcept>

#include "perf/ceiling/ceiling.h"

namespace moe::perf {

Ceilings measureCeilings(const CeilingCase&, const std::function<void(const std::string&)>&) {
  throw std::runtime_error("--ceiling needs GPUs, and moe_perf was built without CUDA");
}

}  // namespace moe::perf
