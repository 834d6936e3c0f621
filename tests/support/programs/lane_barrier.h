// Where the lanes of a ThreadedWarp meet. Each lane keeps a digest of the collectives that it has called and of their
// uniform arguments. Lanes have diverged if they meet with different digests, or if one waits for a lane that never
// comes. Then all of them throw. Meeting orders memory. Keeping the digest does not, so a data race between lanes
// remains one.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <thread>

#include "support/base/rng.h"

namespace moe::test {

struct LanesDiverged : std::runtime_error {
  LanesDiverged() : std::runtime_error("the lanes of a warp disagree about what they do together") {}
};

template <int kLanes>
class LaneBarrier {
 public:
  // One value per lane travels with a meeting. `digest` and `value` of all lanes are readable until the meeting after
  // the next one.
  struct Word {
    std::uint64_t digest, value;
  };
  using Words = std::array<Word, kLanes>;

  const Words& meet(int lane, std::uint64_t digest, std::uint64_t value) {
    const std::uint32_t generation = generation_.load(std::memory_order_acquire);
    Words& words = words_[generation % 2];
    words[static_cast<std::size_t>(lane)] = {digest, value};
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == kLanes) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      generation_.notify_all();
    } else {
      awaitNext(generation);
    }
    for (const Word& word : words) {
      if (word.digest != digest) fail();
    }
    return words;
  }

 private:
  void awaitNext(std::uint32_t generation) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins) {
      if (spins < 20) {
        std::this_thread::yield();
      } else if (spins < 2000) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (diverged_.load(std::memory_order_relaxed) || std::chrono::steady_clock::now() > end) fail();
      }
    }
  }
  [[noreturn]] void fail() {
    diverged_.store(true, std::memory_order_relaxed);
    throw LanesDiverged();
  }

  std::atomic<std::uint32_t> arrived_{0}, generation_{0};
  std::atomic<bool> diverged_{false};
  std::array<Words, 2> words_{};
};

}  // namespace moe::test
