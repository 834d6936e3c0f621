// The Memory of queue_wait.h for GPU threads. Queues lie in host memory, and counters may lie there too, so everything
// is at system scope.
#pragma once

#include "device/lanes.h"

namespace moe {

class CudaQueueMemory {
 public:
  MOE_LANES std::uint64_t add(std::uint64_t* counter, std::uint64_t n) const {
    std::uint64_t before;
    asm volatile("atom.relaxed.sys.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(counter), "l"(n) : "memory");
    return before;
  }

  MOE_LANES std::uint64_t load(const std::uint64_t* from) const {
    std::uint64_t word;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
    return word;
  }
  MOE_LANES void publish(std::uint64_t* to, std::uint64_t word) const {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
  }
  MOE_LANES void publish(std::uint32_t* to, std::uint32_t word) const {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
  }
  MOE_LANES bool take(std::uint32_t* lock) const {
    std::uint32_t before;
    asm volatile("atom.acquire.sys.global.exch.b32 %0, [%1], 1;" : "=r"(before) : "l"(lock) : "memory");
    return before == 0;
  }

  MOE_LANES void storeSegment(Quad* to, const Quad& segment) const {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(segment.x), "r"(segment.y),
                 "r"(segment.z), "r"(segment.w)
                 : "memory");
  }
  MOE_LANES void storeRecord(std::uint32_t* to, std::uint32_t value) const { publish(to, value); }
  // As an access to a device: done once, and neither split nor merged with another.
  MOE_LANES void ring(std::uint64_t* to, std::uint64_t value) const {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
  }

  MOE_LANES std::uint64_t nanoseconds() const {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
  }
  MOE_LANES void pause() const { __nanosleep(64); }
};

}  // namespace moe
