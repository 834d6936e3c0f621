// Waits on the CPU for a condition that nobody signals: checks it, sleeps a moment, checks again.
#pragma once

#include <thread>

#include "base/deadline.h"

namespace moe {

// Returns true once holds(), and false at the deadline or when giveUp().
template <class Holds, class GiveUp>
bool pollUntil(const Deadline& deadline, Holds holds, GiveUp giveUp) {
  while (!holds()) {
    if (giveUp() || deadline.expired()) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace moe
