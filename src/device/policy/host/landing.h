// Landing words on a CPU. Each word is a separate relaxed atomic, because its value alone tells a reader everything.
#pragma once

#include <atomic>
#include <cstring>

#include "device/queue/landing.h"
#include "device/rows/wire_sums.h"

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

// Takes landing words to `to`, and empties their places. mayWait() yields the core. If it returns false, the wait ends,
// and so does take(), with false.
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

// Reads a landing word to `to`, and leaves it in place.
template <class MayWait>
bool look(std::uint32_t* to, const std::uint8_t* row, MayWait mayWait) {
  std::uint32_t landed;
  while ((landed = wordAt(row, 0).load(std::memory_order_relaxed)) == kNothingLanded) {
    if (!mayWait()) return false;
  }
  *to = fromLanding(landed);
  return true;
}

// The memory of a WireSum. `patience` and `report` belong to waits for landing words.
template <class List, class Patience, class Report>
struct WireMemory {
  const List& list;
  int i;
  Patience& patience;
  const Report& report;

  bool load(int term, void* to, const std::uint8_t* from, std::uint32_t bytes) const {
    if (lands(term)) return take(static_cast<std::uint8_t*>(to), from, bytes, [&] { return mayWait(term); });
    std::memcpy(to, from, bytes);
    return true;
  }
  bool look(int term, std::uint32_t* to, const std::uint8_t* from, std::uint32_t bytes) const {
    if (lands(term)) return host_landing::look(to, from, [&] { return mayWait(term); });
    std::memcpy(to, from, bytes);
    return true;
  }
  void store(std::uint8_t* to, const void* from, std::size_t bytes) const {
    if constexpr (MadeToLand<List>) {
      send(to, static_cast<const std::uint8_t*>(from), static_cast<std::uint32_t>(bytes));
    } else {
      std::memcpy(to, from, bytes);
    }
  }

 private:
  bool lands(int term) const {
    if constexpr (TakesLanded<List>) return term < list.landed(i);
    return false;
  }
  bool mayWait(int term) const {
    if constexpr (TakesLanded<List>) return patience.goesOn([&] { return list.late(i, term); }, report);
    return false;
  }
};
template <class List, class Patience, class Report>
WireMemory(const List&, int, Patience&, const Report&) -> WireMemory<List, Patience, Report>;

}  // namespace moe::host_landing
