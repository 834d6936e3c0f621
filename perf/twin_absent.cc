// Builds without CUDA have no twin.
#include <stdexcept>

#include "twin.h"

namespace moe::perf {

Twin::Twin(moeComm_t comm) : comm_(comm) {
  throw std::runtime_error("--twin needs GPUs, and moe_perf was built without CUDA");
}

void Twin::use(bool) {}

}  // namespace moe::perf
