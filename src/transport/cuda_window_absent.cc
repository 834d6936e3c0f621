// Replaces the window in GPU memory in builds without CUDA.
#include "transport/reach.h"

namespace moe {

std::unique_ptr<Window> makeCudaWindow(std::size_t, const Allocator&, int, WindowSharing, bool) {
  throw Error(moeUnsupported, "this build of moecomm has no CUDA");
}

std::unique_ptr<Reach> makeCudaReach(int, WindowSharing, bool) {
  throw Error(moeUnsupported, "this build of moecomm has no CUDA");
}

}  // namespace moe
