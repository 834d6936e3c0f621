// Replaces the window in GPU memory in builds without CUDA.
#include "transport/window.h"

namespace moe {

std::unique_ptr<Window> makeCudaWindow(std::size_t, const Allocator&, int, WindowSharing) {
  throw Error(moeUnsupported, "this build of moecomm has no CUDA");
}

}  // namespace moe
