// Waits on the CPU for something that nobody signals: looks, sleeps a moment, looks again.
#pragma once

#include <thread>

#include "base/deadline.h"

namespace moe {

// True once holds(); false at the deadline or when giveUp().
template <class Holds, class GiveUp>
bool pollUntil(const Deadline& deadline, Holds holds, GiveUp giveUp) {
  while (!holds()) {
    if (giveUp() || deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace moe
