// A mark in every object that the C ABI gives out. With it the C ABI recognises destroyed objects and foreign pointers,
// as long as the memory can still be read.
#pragma once

#include <cstdint>

namespace moe {

// Must be the first base of such an object. Each class has its own `kMark`.
template <std::uint64_t kMark>
class Alive {
 public:
  Alive() { set(kMark); }
  ~Alive() { set(0); }
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

  // Deliberately reads memory that may have been freed, so sanitizers must not check it.
#if defined(__GNUC__)
  __attribute__((no_sanitize("address", "thread"), noinline))
#endif
  static bool
  is(const void* object) noexcept {
    return object != nullptr && __atomic_load_n(static_cast<const std::uint64_t*>(object), __ATOMIC_RELAXED) == kMark;
  }

 private:
  // Atomic, because a compiler may drop a plain store to an object at the end of its life.
  void set(std::uint64_t mark) noexcept {
    __atomic_store_n(&mark_, mark, __ATOMIC_RELAXED);
  }

  std::uint64_t mark_;
};

}  // namespace moe
