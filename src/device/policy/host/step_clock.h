// The clock of a CPU's step records. Dumps tell the steady clock. Asking for that takes some 50 ns in a step, since it
// waits for what the processor has begun; reading the processor's counter takes 12. Where the kernel itself keeps time
// by the counter, steps record that, and who reads the ring converts it (docs/decisions/0074).
#pragma once

#include <chrono>

#include "device/view/step_record.h"

namespace moe {

inline std::uint64_t steadyNanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// The processor's counter; 0 where there is none. It may be read somewhat before loads that precede it have ended.
inline std::uint64_t processorTicks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return 0;
#endif
}

// The time as the steps of this ring record it.
inline std::uint64_t stepTime(const StepRecorder& ring) {
  return ring.inTicks != 0 ? processorTicks() : steadyNanoseconds();
}

}  // namespace moe
