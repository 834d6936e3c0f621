// Writes completions as an adapter does. It uses the offsets of the format, independently of the readers in
// device/queue/mlx5/completion_queue.h.
#pragma once

#include <atomic>
#include <cstring>

#include "device/queue/mlx5/completion_queue.h"

namespace moe::test {

// Writes entry number `produced`, counted from the start, into a queue of `count` entries.
inline void writeCqe(mlx5::Cqe* entries, std::uint32_t count, std::uint64_t produced, const mlx5::Completion& what) {
  std::uint8_t image[64] = {};
  const auto put = [&](int offset, int bytes, std::uint32_t value) {
    for (int i = bytes; i-- > 0; value >>= 8) image[offset + i] = static_cast<std::uint8_t>(value);
  };
  put(32, 4, what.userIndex);
  std::memcpy(image + 36, &what.immediate, 4);
  put(44, 4, what.bytes);
  put(54, 1, what.vendorSyndrome);
  put(55, 1, static_cast<std::uint32_t>(what.syndrome));
  put(56, 1, what.wqeOpcode);
  put(57, 3, what.queuePair);
  put(60, 2, what.counter);
  put(63, 1, static_cast<std::uint32_t>(what.opcode) << 4 | (produced / count % 2));

  mlx5::Cqe& entry = entries[produced % count];
  std::memcpy(entry.word, image, 60);
  std::uint32_t last;
  std::memcpy(&last, image + 60, 4);
  std::atomic_ref(entry.word[15]).store(last, std::memory_order_release);
}

}  // namespace moe::test
