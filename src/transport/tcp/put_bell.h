// Where a thread that carries puts sleeps until there is work for it. No work is missed: a poster posts before it
// rings, and the thread looks once more between doze() and its sleep.
#pragma once

#include <atomic>
#include <chrono>

#include "base/fd.h"

namespace moe {

class PutBell {
 public:
  PutBell();  // throws moeSystemError

  // Any thread. Makes a system call only if somebody sleeps.
  void ring() noexcept;

  // For the sleeper. After doze() it sees everything that happened before any ring() that found it awake.
  void doze() noexcept { dozes_.exchange(true, std::memory_order_acq_rel); }
  // Sleeps until it is rung, or one of two other descriptors is readable (below 0: none), at most for this long.
  void sleep(std::chrono::microseconds most, int other = -1, int another = -1) noexcept;
  void rise() noexcept;

 private:
  Fd event_;
  std::atomic<bool> dozes_ = false;
};

}  // namespace moe
