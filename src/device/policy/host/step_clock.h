// The clock of a CPU's step records. Dumps use the steady clock. Reading that clock takes some 50 ns in a step, because
// it waits for instructions that the processor has begun; reading the processor's counter takes 12 ns. If the operating
// system itself derives time from the counter, steps record the counter, and readers of the ring convert it
// (docs/decisions/0074).
#pragma once

#include <chrono>

#include "device/view/step_record.h"

namespace moe {

inline std::uint64_t steadyNanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// The processor's counter; 0 on machines without one. It may be read slightly before preceding loads have completed.
inline std::uint64_t processorTicks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return 0;
#endif
}

// The time in the form that the steps of this ring record.
inline std::uint64_t stepTime(const StepRecorder& ring) {
  return ring.inTicks != 0 ? processorTicks() : steadyNanoseconds();
}

}  // namespace moe
