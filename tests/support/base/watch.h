// Work that runs beside a step, as a kernel of the caller would. It consumes rows that the step has made, or makes rows
// that the step waits for.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "device/view/flag.h"

namespace moe::test {

// For each i, waits until words[i] reaches `number` and then calls look(i). The first i is arbitrary. Without words it
// lets some time pass instead.
struct Watch {
  const Flag* words = nullptr;  // NULL: there are none
  int count = 0;                // 0: nothing is watched
  std::uint64_t number = 0;
  std::function<void(int)> look;
};

// Watches on a thread of its own while it lives. A word that has not come when the step has ended never comes.
class Watcher {
 public:
  explicit Watcher(const Watch& watch) {
    if (watch.count > 0) thread_ = std::jthread([this, watch] { look(watch); });
  }
  ~Watcher() { ended_.store(true, std::memory_order_release); }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

 private:
  static bool reached(const Watch& watch, int i) {
    const std::atomic_ref word(const_cast<Flag&>(watch.words[i]));
    return flagEpoch(word.load(std::memory_order_acquire)) >= watch.number;
  }
  void look(const Watch& watch) const {
    for (int n = 0; n < watch.count; ++n) {
      const auto i = static_cast<int>((watch.number + static_cast<unsigned>(n)) % static_cast<unsigned>(watch.count));
      if (watch.words == nullptr) {
        if (n % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(20));
        watch.look(i);
        continue;
      }
      while (!reached(watch, i) && !ended_.load(std::memory_order_acquire)) std::this_thread::yield();
      if (reached(watch, i)) watch.look(i);
    }
  }

  std::atomic<bool> ended_{false};
  std::jthread thread_;
};

}  // namespace moe::test
