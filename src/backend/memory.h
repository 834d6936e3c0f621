// Memory with its owner, and the caller's own allocator (moeConfig_t.allocate and free).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/error.h"

namespace moe {

// Memory that knows how it is freed. It is shared, because peers that are threads of this process use a window too.
using Memory = std::shared_ptr<std::uint8_t>;

// The caller's own allocator. Without functions, the backend allocates.
struct Allocator {
  moeAllocate_t allocate = nullptr;
  moeFree_t free = nullptr;
  void* user = nullptr;

  explicit operator bool() const { return allocate != nullptr; }

  // The memory is not cleared. `kind` is a moeMemory value.
  Memory take(std::size_t bytes, int kind) const {
    auto* memory = static_cast<std::uint8_t*>(allocate(user, bytes, kind));
    if (memory == nullptr) {
      throw Error(moeSystemError, "config.allocate returned NULL for " + std::to_string(bytes) + " bytes of " +
                                      (kind == moeMemoryWindow ? "window" : "private") + " memory");
    }
    return {memory, [own = *this, bytes, kind](std::uint8_t* p) { own.free(own.user, p, bytes, kind); }};
  }
};

}  // namespace moe
