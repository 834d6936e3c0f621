// Sits where a communicator's kernels are launched: sees how many multiprocessors the library gives an operation, and
// can put the hand-written twin of its hottest kernel in the place of that (moe_perf --twin).
#pragma once

#include "moecomm.h"

namespace moe::perf {

// Of an operation's latest launch; 0: none yet, or no GPU.
struct Multiprocessors {
  int dispatch = 0;
  int combine = 0;
};

class LaunchSeat {
 public:
  // While it lives. With the host backend nothing is seen.
  explicit LaunchSeat(moeComm_t comm);
  ~LaunchSeat();
  LaunchSeat(const LaunchSeat&) = delete;
  LaunchSeat& operator=(const LaunchSeat&) = delete;

  Multiprocessors multiprocessors() const { return multiprocessors_; }

  // Nothing may be in flight on this machine's GPUs. Throws std::runtime_error if the twin cannot run here.
  void loadTwin();
  // Whose kernel HT dispatches are, from the next launch, or the next recorded one, on.
  void useTwin(bool twin) { twin_ = twin; }

 private:
  [[maybe_unused]] moeComm_t comm_;  // builds without CUDA do not look at it
  bool twin_ = false;
  Multiprocessors multiprocessors_;
};

}  // namespace moe::perf
