// A send queue in this process's memory, for tests without libibverbs. All of it lies in the object, which a test may
// place where a GPU reaches it too.
#pragma once

#include <array>
#include <stdexcept>

#include "device/policy/host/queue_memory.h"
#include "device/queue/mlx5/submit.h"

namespace moe::test {

// As adapters know memory.
inline std::uint64_t addressOf(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

class ShadowQueue {
 public:
  static constexpr std::uint32_t kSlotsMax = 256;

  // As if `begin` slots had been used before.
  explicit ShadowQueue(std::uint32_t slots, std::uint32_t queuePair = 0x123456, std::uint64_t begin = 0)
      : completed_(begin), counters_{begin, begin, begin, 0, 0}, queue_{segments_.data(), slots,      queuePair,
                                                                        record_,          &doorbell_, &counters_,
                                                                        &completed_} {
    if (slots > kSlotsMax) throw std::runtime_error("more slots than there is room for");
  }
  ShadowQueue(const ShadowQueue&) = delete;
  ShadowQueue& operator=(const ShadowQueue&) = delete;

  const mlx5::SendQueue& queue() const { return queue_; }

 private:
  std::array<Quad, std::size_t{kSlotsMax} * mlx5::kSlotSegments> segments_{};
  std::uint32_t record_[2] = {};
  std::uint64_t doorbell_ = 0, completed_;
  mlx5::SendCounters counters_;
  mlx5::SendQueue queue_;
};

inline constexpr std::uint64_t kNeverAbort = 0;

// A limit for waits that are not to fail.
inline WaitLimit patience(std::uint64_t milliseconds = 5'000) {
  return {HostQueueMemory().nanoseconds() + milliseconds * 1'000'000, &kNeverAbort};
}

}  // namespace moe::test
