// Replaces the cuda backend in builds without CUDA.
#include "backend/backend.h"

namespace moe {

void awaitDevice(int) noexcept {}

std::unique_ptr<Backend> makeCudaBackend(int, Bulk, std::string* why) {
  *why = "this build of moecomm has no CUDA";
  return nullptr;
}

}  // namespace moe
