#include "comm/communicator/window_heap.h"

#include "base/error.h"

namespace moe {

void* WindowHeap::take(std::uint64_t bytes) {
  if (bytes == 0) return nullptr;
  const std::scoped_lock lock(mutex_);
  return begin_ + heap_.take(bytes);
}

void WindowHeap::giveBack(const void* memory) {
  if (memory == nullptr) return;
  const std::int64_t offset = offsetOf(memory);
  if (offset < 0) throw Error(moeInvalidArgument, "memory was not returned by moeMemAlloc of this communicator");
  const std::scoped_lock lock(mutex_);
  heap_.giveBack(static_cast<std::uint64_t>(offset));
}

std::int64_t WindowHeap::offsetOf(const void* memory) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(begin_);
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  return at < begin || at >= begin + bytes_ ? -1 : static_cast<std::int64_t>(at - begin);
}

std::uint64_t WindowHeap::roomAt(std::int64_t offset) const {
  const std::scoped_lock lock(mutex_);
  return heap_.roomAt(static_cast<std::uint64_t>(offset));
}

}  // namespace moe
