// A send queue in this process's memory, for tests without libibverbs. The object holds all of it, so a test may also
// place it where a GPU can reach it.
#pragma once

#include <array>
#include <stdexcept>

#include "device/policy/host/queue_memory.h"
#include "device/queue/mlx5/send_queue.h"

namespace moe::test {

// An address in the form that adapters use.
inline std::uint64_t addressOf(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory);
}

class ShadowQueue {
 public:
  static constexpr std::uint32_t kSlotsMax = 256;

  // Starts as if `begin` slots had been used before.
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

// A limit for waits. Those that must succeed take the default.
template <std::uint64_t kMilliseconds = 5'000>
WaitLimit patience() {
  static constexpr WaitOrders kOrders{0, kMilliseconds * 1'000'000};
  return {HostQueueMemory().nanoseconds(), &kOrders};
}

// One for waits that are told to give up.
inline WaitLimit noPatience() {
  static constexpr WaitOrders kOrders{1, ~std::uint64_t{0}};
  return {0, &kOrders};
}

}  // namespace moe::test
