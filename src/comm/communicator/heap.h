// Hands out pieces of the window's heap for moeMemAlloc, first fit, and merges free neighbours. It only does the
// bookkeeping and never touches the memory. One thread at a time.
#pragma once

#include <cstdint>
#include <map>

namespace moe {

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

}  // namespace moe
