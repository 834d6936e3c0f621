// A mark by which the C ABI knows an object that it has given out from one that has been destroyed, or from anything
// else, as long as the memory can still be read.
#pragma once

#include <cstdint>

namespace moe {

// Base of such objects, the first one. `kMark`: another for each class.
template <std::uint64_t kMark>
class Alive {
 public:
  Alive() { set(kMark); }
  ~Alive() { set(0); }
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

  // Reads memory that may have been freed, which is the point: sanitizers do not look.
#if defined(__GNUC__)
  __attribute__((no_sanitize("address", "thread"), noinline))
#endif
  static bool
  is(const void* object) noexcept {
    return object != nullptr && __atomic_load_n(static_cast<const std::uint64_t*>(object), __ATOMIC_RELAXED) == kMark;
  }

 private:
  // Atomic, so that the last store, to an object whose life ends, is made.
  void set(std::uint64_t mark) noexcept {
    __atomic_store_n(&mark_, mark, __ATOMIC_RELAXED);
  }

  std::uint64_t mark_;
};

}  // namespace moe
