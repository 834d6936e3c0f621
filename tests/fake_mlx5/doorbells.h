// The doorbell registers of the adapter: memory that the program received as pages of registers. This class maps it a
// second time, so that the adapter can read it even after the program has unmapped its own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace moe::test {

inline constexpr std::size_t kRegisterPageBytes = 4096;
// The program has 32 pages with two registers each. libmlx5 locks the first one and uses it for all queue pairs without
// a register of their own.
inline constexpr std::uint32_t kRegisterPages = 32, kRegistersPerPage = 4;

class Doorbells {
 public:
  Doorbells() = default;
  ~Doorbells();
  Doorbells(const Doorbells&) = delete;
  Doorbells& operator=(const Doorbells&) = delete;

  // Adds the program's page number `index` of an opened device. The page must be shared memory.
  void addPage(int context, std::uint32_t index, void* page);
  void removeContext(int context);

  // attach gives the queue pair a register and returns libmlx5's number for that register. detach takes it back.
  std::uint32_t attach(int context, std::uint32_t queuePair);
  void detach(std::uint32_t queuePair);

  // Calls ring(context, value in the machine's byte order, queue pairs of the register) for each register that was
  // rung.
  template <class Ring>
  bool take(Ring ring) {
    bool any = false;
    for (auto& [key, pairs] : registers_) {
      for (std::uint64_t* half : halves(key)) {
        const std::uint64_t value = half == nullptr ? 0 : takeValue(half);
        if (value == 0) continue;
        ring(key.first, value, pairs);
        any = true;
      }
    }
    return any;
  }

 private:
  using Key = std::pair<int, std::uint32_t>;  // context, and page or register
  std::array<std::uint64_t*, 2> halves(const Key& key) const;
  static std::uint64_t takeValue(std::uint64_t* half);

  std::map<Key, std::uint8_t*> pages_;
  std::map<Key, std::vector<std::uint32_t>> registers_;  // queue pairs by register in use
  std::map<int, std::uint32_t> given_;                   // number given, by context
};

}  // namespace moe::test
