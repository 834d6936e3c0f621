// The doorbell registers of the adapter: memory that the program got as pages of registers. It is mapped a second time
// here, so that the adapter can read it even after the program has unmapped its own.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace moe::test {

inline constexpr std::size_t kRegisterPageBytes = 4096;
// Of 32 pages with two registers each; the first is the one that libmlx5 locks, for all that have none of their own.
inline constexpr std::uint32_t kRegisterPages = 32, kRegistersPerPage = 4;

class Doorbells {
 public:
  Doorbells() = default;
  ~Doorbells();
  Doorbells(const Doorbells&) = delete;
  Doorbells& operator=(const Doorbells&) = delete;

  // The program's page number `index` of an opened device. It must be shared memory.
  void addPage(int context, std::uint32_t index, void* page);
  void removeContext(int context);

  // Gives the queue pair a register, by libmlx5's number of it, and takes it back.
  std::uint32_t attach(int context, std::uint32_t queuePair);
  void detach(std::uint32_t queuePair);

  // Calls ring(context, value in the machine's order, queue pairs of the register) for each that was rung.
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
  std::map<Key, std::vector<std::uint32_t>> registers_;  // those in use, and by which queue pairs
  std::map<int, std::uint32_t> given_;                   // how many, by context
};

}  // namespace moe::test
