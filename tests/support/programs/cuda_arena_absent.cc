// Replaces the GPU memory of tests in builds without CUDA.
#include "support/api/api_world.h"

namespace moe::test {

std::unique_ptr<Arena> makeCudaArena(int) {
  return nullptr;
}
int cudaDeviceCount() {
  return 0;
}

}  // namespace moe::test
