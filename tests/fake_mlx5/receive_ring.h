// The receive queue of a queue pair as the software adapter sees it. The receiver has posted an element in the
// program's memory for each send and for each write with an immediate.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "device/queue/mlx5/byte_order.h"
#include "fake_mlx5/memory_regions.h"
#include "fake_mlx5/violations.h"

namespace moe::test {

class ReceiveRing {
 public:
  ReceiveRing(const std::uint8_t* elements, std::uint32_t count, std::uint32_t shift, const std::uint32_t* record,
              std::uint32_t queuePair, Violations& violations)
      : elements_(elements),
        count_(count),
        shift_(shift),
        record_(record),
        queuePair_(queuePair),
        violations_(violations) {}

  bool hasNext() {
    const std::uint32_t word = std::atomic_ref(*const_cast<std::uint32_t*>(record_)).load(std::memory_order_acquire);
    const auto posted = static_cast<std::uint16_t>(mlx5::bigEndian(word) - used_);
    if (posted > count_) violations_.note(queuePair_, used_, "more receives are posted than the queue holds");
    return posted != 0;
  }
  std::uint16_t take() { return used_++; }

  // Where byte `offset` of the next element's buffer goes, and how many of `bytes` fit there. Null if the element ends
  // before that byte or its key does not cover it.
  struct Place {
    const Region* region;
    std::uint64_t address;
    std::uint32_t bytes;
  };
  Place find(const MemoryRegions& regions, std::uint32_t pd, std::uint32_t offset, std::uint32_t bytes) const {
    constexpr std::uint32_t kEnd = 0x100;
    const std::uint8_t* element = elements_ + (std::size_t{used_ & (count_ - 1)} << shift_);
    for (std::uint32_t at = 0; at < 1u << shift_; at += 16) {
      std::uint32_t word[4];
      std::memcpy(word, element + at, sizeof(word));
      const std::uint32_t length = mlx5::bigEndian(word[0]), key = mlx5::bigEndian(word[1]);
      if (key == kEnd) break;
      if (offset >= length) {
        offset -= length;
        continue;
      }
      const std::uint64_t address = std::uint64_t{mlx5::bigEndian(word[2])} << 32 | mlx5::bigEndian(word[3]);
      const std::uint32_t here = bytes < length - offset ? bytes : length - offset;
      return {regions.find(key, pd, address, length, kAccessLocalWrite), address + offset, here};
    }
    return {nullptr, 0, 0};
  }

 private:
  const std::uint8_t* elements_;
  std::uint32_t count_, shift_;
  const std::uint32_t* record_;
  std::uint32_t queuePair_;
  Violations& violations_;
  std::uint16_t used_ = 0;
};

}  // namespace moe::test
