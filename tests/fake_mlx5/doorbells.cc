#include "fake_mlx5/doorbells.h"

#include <sys/mman.h>

#include <atomic>

#include "device/queue/mlx5/byte_order.h"

namespace moe::test {

Doorbells::~Doorbells() {
  for (const auto& [key, page] : pages_) munmap(page, kRegisterPageBytes);
}

void Doorbells::addPage(int context, std::uint32_t index, void* page) {
  // mremap with an old size of 0 maps shared memory a second time.
  void* again = mremap(page, 0, kRegisterPageBytes, MREMAP_MAYMOVE);
  if (again == MAP_FAILED) return;  // without the second mapping nobody sees these doorbells
  std::uint8_t*& known = pages_[{context, index}];
  if (known != nullptr) munmap(known, kRegisterPageBytes);
  known = static_cast<std::uint8_t*>(again);
}

void Doorbells::removeContext(int context) {
  for (auto page = pages_.begin(); page != pages_.end();) {
    if (page->first.first != context) {
      ++page;
      continue;
    }
    munmap(page->second, kRegisterPageBytes);
    page = pages_.erase(page);
  }
  std::erase_if(registers_, [&](const auto& entry) { return entry.first.first == context; });
  given_.erase(context);
}

// Two of the four numbers of a page are registers for everybody. The kernel keeps the others.
std::uint32_t Doorbells::attach(int context, std::uint32_t queuePair) {
  const std::uint32_t nth = given_[context]++ % (2 * (kRegisterPages - 1));
  const std::uint32_t number = (1 + nth / 2) * kRegistersPerPage + nth % 2;
  registers_[{context, number}].push_back(queuePair);
  return number;
}

void Doorbells::detach(std::uint32_t queuePair) {
  for (auto& [key, pairs] : registers_) std::erase(pairs, queuePair);
  std::erase_if(registers_, [](const auto& entry) { return entry.second.empty(); });
}

// libmlx5 alternates between the two halves.
std::array<std::uint64_t*, 2> Doorbells::halves(const Key& key) const {
  const auto page = pages_.find({key.first, key.second / kRegistersPerPage});
  if (page == pages_.end()) return {nullptr, nullptr};
  std::uint8_t* begin = page->second + 0x800 + key.second % kRegistersPerPage * 0x200;
  return {reinterpret_cast<std::uint64_t*>(begin), reinterpret_cast<std::uint64_t*>(begin + 0x100)};
}

std::uint64_t Doorbells::takeValue(std::uint64_t* half) {
  const std::atomic_ref word(*half);
  if (word.load(std::memory_order_relaxed) == 0) return 0;
  return mlx5::bigEndian(word.exchange(0, std::memory_order_acquire));
}

}  // namespace moe::test
