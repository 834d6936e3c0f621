// The heap of a rank's window: memory for moeMemAlloc and moeMemPoolAlloc. A communicator has one, and whoever holds
// blocks of moeMemPoolAlloc shares it: the window stays until the last of them is gone. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "backend/memory.h"
#include "comm/communicator/heap.h"

namespace moe {

class WindowHeap {
 public:
  // The `bytes` bytes of `window` from `offset` on. `device`: a CUDA ordinal, or -1.
  WindowHeap(Memory window, std::uint64_t offset, std::uint64_t bytes, int device)
      : window_(std::move(window)), begin_(window_.get() + offset), bytes_(bytes), device_(device), heap_(bytes) {}

  // The following throw as Heap does. No bytes are at NULL.
  void* take(std::uint64_t bytes);
  void giveBack(const void* memory);

  // Where in the heap `memory` lies; -1: not in it.
  std::int64_t offsetOf(const void* memory) const noexcept;
  // Bytes from there to the end of the block.
  std::uint64_t roomAt(std::int64_t offset) const;

  // The communicator is gone. What has been taken stays.
  void close() noexcept { open_ = false; }
  bool isOpen() const noexcept { return open_; }

  int device() const noexcept { return device_; }

 private:
  Memory window_;
  std::uint8_t* begin_;
  std::uint64_t bytes_;
  int device_;
  std::atomic<bool> open_ = true;
  mutable std::mutex mutex_;
  Heap heap_;
};

}  // namespace moe
