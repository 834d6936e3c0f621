// The processors that a thread may run on, as ranks tell each other. Numbers are those of the kernel, also in
// containers.
#pragma once

#include <sched.h>

#include <array>
#include <cstdint>

namespace moe {

using ProcessorMask = std::array<std::uint64_t, CPU_SETSIZE / 64>;

// No processor if it is not known, as on machines with more than 1024.
inline ProcessorMask processorsOfThisThread() {
  ProcessorMask mask{};
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return mask;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) mask[cpu / 64] |= std::uint64_t{1} << cpu % 64;
  }
  return mask;
}

}  // namespace moe
