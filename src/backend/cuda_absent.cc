// Stands in for the cuda backend in builds without CUDA.
#include "backend/backend.h"
#include "transport/window.h"

namespace moe {

std::unique_ptr<Backend> makeCudaBackend(int, Bulk, std::string* why) {
  *why = "this build of moecomm has no CUDA";
  return nullptr;
}

std::unique_ptr<Window> makeCudaWindow(std::size_t, const Allocator&, int) {
  throw Error(moeUnsupported, "this build of moecomm has no CUDA");
}

}  // namespace moe
