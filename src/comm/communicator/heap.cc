#include "comm/communicator/heap.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace moe {

std::uint64_t Heap::take(std::uint64_t bytes) {
  std::uint64_t largest = 0;
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [offset, room] = *it;
    largest = std::max(largest, room);
    if (bytes > room) continue;
    const std::uint64_t rounded = std::min(room, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    free_.erase(it);
    if (rounded < room) free_[offset + rounded] = room - rounded;
    taken_[offset] = rounded;
    return offset;
  }
  throw Error(moeInvalidArgument,
              fmt::format("bytes is {}, but the largest free block of the window's heap is {} (config.heapBytes is {})",
                          bytes, largest, bytes_));
}

std::uint64_t Heap::roomAt(std::uint64_t offset) const {
  const auto next = taken_.upper_bound(offset);
  if (next == taken_.begin()) return 0;
  const auto& [begin, bytes] = *std::prev(next);
  return bytes - std::min(bytes, offset - begin);
}

void Heap::giveBack(std::uint64_t offset) {
  const auto it = taken_.find(offset);
  if (it == taken_.end())
    throw Error(moeInvalidArgument, "memory was not returned by moeMemAlloc of this communicator");
  std::uint64_t bytes = it->second;
  taken_.erase(it);
  const auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    free_.erase(next);
  }
  const auto before = free_.lower_bound(offset);
  if (before != free_.begin()) {
    const auto previous = std::prev(before);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

void* WindowHeap::take(std::uint64_t bytes) {
  if (bytes == 0) return nullptr;
  if (asleep_) throw Error(moeInvalidUsage, kSuspended);
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
