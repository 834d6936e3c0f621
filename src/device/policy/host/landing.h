// Landing words on a CPU: each is a relaxed atomic of its own, because the word itself says all that a reader must
// know.
#pragma once

#include <atomic>
#include <cstring>

#include "device/queue/landing.h"

namespace moe::host_landing {

inline std::atomic_ref<std::uint32_t> wordAt(const std::uint8_t* row, std::uint32_t offset) {
  return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(const_cast<std::uint8_t*>(row) + offset));
}

inline void send(std::uint8_t* to, const std::uint8_t* from, std::uint32_t bytes) {
  for (std::uint32_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
    std::uint32_t value;
    std::memcpy(&value, from + at, sizeof value);
    wordAt(to, at).store(toLanding(value), std::memory_order_relaxed);
  }
}

// Into `to`. mayWait() gives the core away; false from it ends the wait, and that is the result.
template <class MayWait>
bool take(std::uint8_t* to, const std::uint8_t* row, std::uint32_t bytes, MayWait mayWait) {
  for (std::uint32_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
    const std::atomic_ref word = wordAt(row, at);
    std::uint32_t landed;
    while ((landed = word.load(std::memory_order_relaxed)) == kNothingLanded) {
      if (!mayWait()) return false;
    }
    word.store(kNothingLanded, std::memory_order_relaxed);
    const std::uint32_t value = fromLanding(landed);
    std::memcpy(to + at, &value, sizeof value);
  }
  return true;
}

}  // namespace moe::host_landing
