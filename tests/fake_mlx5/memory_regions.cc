#include "fake_mlx5/memory_regions.h"

#include <atomic>
#include <cstring>

namespace moe::test {
namespace {

template <class Word>
Word* wordAt(std::uint64_t address) {
  return reinterpret_cast<Word*>(static_cast<std::uintptr_t>(address));
}

// Copies word by word instead of by memcpy, because programs read the words while they arrive, and sanitizers watch
// memcpy.
template <class Word>
void storeWord(std::uint64_t to, const std::uint8_t* from) {
  Word word;
  __builtin_memcpy(&word, from, sizeof(word));
  std::atomic_ref(*wordAt<Word>(to)).store(word, std::memory_order_release);
}
template <class Word>
void loadWord(std::uint64_t from, std::uint8_t* to) {
  const Word word = std::atomic_ref(*wordAt<Word>(from)).load(std::memory_order_acquire);
  __builtin_memcpy(to, &word, sizeof(word));
}

// Calls visit(offset, number of bytes) for single bytes up to an aligned address, then for words, then for single
// bytes.
template <class Visit>
void forWords(std::uint64_t address, std::uint64_t bytes, Visit visit) {
  for (std::uint64_t at = 0; at < bytes;) {
    const std::uint64_t size = (address + at) % 8 == 0 && bytes - at >= 8 ? 8 : 1;
    visit(at, size);
    at += size;
  }
}

}  // namespace

bool readMemory(const Region& region, std::uint64_t at, void* to, std::uint64_t bytes) {
  const std::uint64_t place = region.placeOf(at);
  if (region.gpu != nullptr) return region.gpu->read(to, place, bytes);
  auto* target = static_cast<std::uint8_t*>(to);
  forWords(place, bytes, [&](std::uint64_t offset, std::uint64_t size) {
    if (size == 8) {
      loadWord<std::uint64_t>(place + offset, target + offset);
    } else {
      loadWord<std::uint8_t>(place + offset, target + offset);
    }
  });
  return true;
}

bool writeMemory(const Region& region, std::uint64_t at, const void* from, std::uint64_t bytes) {
  const std::uint64_t place = region.placeOf(at);
  if (region.gpu != nullptr) return region.gpu->write(place, from, bytes);
  const auto* source = static_cast<const std::uint8_t*>(from);
  forWords(place, bytes, [&](std::uint64_t offset, std::uint64_t size) {
    if (size == 8) {
      storeWord<std::uint64_t>(place + offset, source + offset);
    } else {
      storeWord<std::uint8_t>(place + offset, source + offset);
    }
  });
  return true;
}

}  // namespace moe::test
