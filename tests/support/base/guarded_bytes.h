// Memory with a guard zone on both sides. It is filled with a poison that no test expects as a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace moe::test {

inline constexpr std::uint8_t kPoison = 0xA5;

inline bool isPoison(const std::uint8_t* begin, std::size_t bytes) {
  return bytes == 0 || (*begin == kPoison && std::memcmp(begin, begin + 1, bytes - 1) == 0);
}

class GuardedBytes {
 public:
  GuardedBytes() : GuardedBytes(0) {}
  explicit GuardedBytes(std::size_t bytes) : size_(bytes), memory_(allocate(bytes)) {
    std::memset(memory_.get(), kPoison, bytes + 2 * kGuard);
  }

  std::uint8_t* data() const { return memory_.get() + kGuard; }
  std::size_t size() const { return size_; }
  bool guardsAreIntact() const { return isPoison(memory_.get(), kGuard) && isPoison(data() + size_, kGuard); }

 private:
  static constexpr std::size_t kGuard = 256;
  struct Free {
    void operator()(std::uint8_t* memory) const { ::operator delete (memory, std::align_val_t{kGuard}); }
  };
  using Memory = std::unique_ptr<std::uint8_t, Free>;
  static Memory allocate(std::size_t bytes) {
    return Memory(static_cast<std::uint8_t*>(::operator new (bytes + 2 * kGuard, std::align_val_t{kGuard})));
  }

  std::size_t size_;
  Memory memory_;
};

}  // namespace moe::test
