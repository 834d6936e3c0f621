// The hand-written twin of the library's hottest kernel, in its place (moe_perf --twin).
#pragma once

#include "moecomm.h"

namespace moe::perf {

// While it lives, `use` says whose kernel the communicator's HT dispatches are.
class Twin {
 public:
  // Loads the twin: nothing may be in flight on this machine's GPUs. Throws std::runtime_error if it cannot run here.
  explicit Twin(moeComm_t comm);
  ~Twin() { use(false); }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  // From the next launch, or the next recorded one, on.
  void use(bool twin);

 private:
  moeComm_t comm_;
};

}  // namespace moe::perf
