// The heap of a rank's window: its bookkeeping, and what a communicator and the holders of its blocks share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

#include "backend/memory.h"

namespace moe {

// Why calls that need the window's memory are refused while it has none.
inline constexpr const char* kSuspended =
    "the communicator is suspended (moeCommSuspend), so its window has no memory: call moeCommResume on all ranks "
    "first";

// Hands out pieces of the window's heap for moeMemAlloc, first fit, and merges free neighbours. It only does the
// bookkeeping and never touches the memory. One thread at a time.
class Heap {
 public:
  explicit Heap(std::uint64_t bytes) : bytes_(bytes) {
    if (bytes > 0) free_[0] = bytes;
  }

  static constexpr std::uint64_t kAlignment = 256;

  // Returns the offset of `bytes` bytes. Throws moeInvalidArgument with the largest free piece if there is no room.
  std::uint64_t take(std::uint64_t bytes);
  // Throws moeInvalidArgument if nothing was taken at `offset`.
  void giveBack(std::uint64_t offset);

  // Bytes from `offset` to the end of its piece, whose size was rounded up; 0 if there is none.
  std::uint64_t roomAt(std::uint64_t offset) const;

 private:
  std::uint64_t bytes_;
  std::map<std::uint64_t, std::uint64_t> free_, taken_;  // offset -> bytes
};

// Memory for moeMemAlloc and moeMemPoolAlloc. A communicator has one, and whoever holds
// blocks of moeMemPoolAlloc shares it: the window stays until the last of them is gone. Any thread.
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

  // Called when the communicator is destroyed. Blocks that have been taken stay valid.
  void close() noexcept { open_ = false; }
  bool isOpen() const noexcept { return open_; }

  // While the window has no memory, take() refuses with moeInvalidUsage.
  void setAsleep(bool asleep) noexcept { asleep_ = asleep; }

  int device() const noexcept { return device_; }

 private:
  Memory window_;
  std::uint8_t* begin_;
  std::uint64_t bytes_;
  int device_;
  std::atomic<bool> open_ = true, asleep_ = false;
  mutable std::mutex mutex_;
  Heap heap_;
};

}  // namespace moe
