// Replaces the cuda backend in builds without CUDA.
#include "backend/backend.h"

namespace moe {

void awaitDevice(int) noexcept {}

void countLayout(const LayoutArgs&, int, moeStream_t) {
  throw Error(moeUnsupported, "layout.backend is moeBackendCuda, but this build of moecomm has no CUDA");
}

std::unique_ptr<Backend> makeCudaBackend(int, Bulk, std::string* why) {
  *why = "this build of moecomm has no CUDA";
  return nullptr;
}

}  // namespace moe
