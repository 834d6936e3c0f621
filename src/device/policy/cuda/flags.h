// The instructions that order memory on GPUs. Everything that peers see has system scope. This is the only place to
// change that.
//
// How CudaWarp uses them:
//   publishAll  __syncwarp, one fence.acq_rel.sys, then the lanes store with st.relaxed.sys.
//   announce    The warps of a block count themselves in shared memory. The last one announces for the block: one
//               fence.acq_rel.sys, then the lanes add the block's share with red.relaxed.sys. A fence at system scope
//               waits for every store on its way to a peer, so there is one per block and not one per warp
//               (docs/decisions/0009-one-fence-per-block.md).
//   mark        The warps count in the same way; the last warp of a block adds with red.release.gpu.
//   waitAll     One warp of a block polls for all of them, lane i flag i: 16 times with ld.acquire.sys, then with
//               ld.relaxed.sys 64 ns apart, and at the end with ld.acquire.sys. The others poll that warp's word in
//               shared memory, 20 ns apart, because polls of many warps would congest the path that rows share with
//               flags.
//   pickReady   A lane looks at an item's words with ld.relaxed.gpu. When some items are ready, all lanes do one
//               fence.acq_rel.gpu and meet. When none is, one warp of the block counts the words that have reached the
//               target, and the others read that number in shared memory. Where rows may be left, each warp counts
//               before it picks, and does the fence before it leaves the rest.
//   stopped     Lane 0 looks at the failure counter. The abort word lies in host memory: one of the waiting lanes reads
//               it once per millisecond, and raises the failure counter for the others.
//   laneFail    atomicAdd claims the record; it is filled and released with st.release.sys.
#pragma once

#include "device/view/flag.h"

namespace moe {

namespace cuda_flags {

MOE_LANES void storeRelease(Flag* flag, Flag word) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(word) : "memory");
}
MOE_LANES void storeRelaxed(Flag* flag, Flag word) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(word) : "memory");
}
MOE_LANES Flag loadAcquire(const Flag* flag) {
  Flag word;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(flag) : "memory");
  return word;
}
MOE_LANES std::uint64_t loadRelaxed(const std::uint64_t* from) {
  std::uint64_t word;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
MOE_LANES std::uint32_t loadRelaxed(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
// Loads of words of another kernel of this GPU. A fenceOnDevice after such loads makes them acquire.
MOE_LANES std::uint32_t loadOnDevice(const std::uint32_t* from) {
  std::uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
MOE_LANES void storeOnDevice(std::uint32_t* to, std::uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
MOE_LANES void fenceOnDevice() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}
MOE_LANES void addReleaseOnDevice(Flag* flag, Flag share) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(flag), "l"(share) : "memory");
}
MOE_LANES void addRelaxed(Flag* flag, Flag share) {
  asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(flag), "l"(share) : "memory");
}
// Adds to a counter in shared memory. Orders memory within the block.
MOE_LANES std::uint32_t addInBlock(std::uint32_t* counter, std::uint32_t value) {
  std::uint32_t before;
  asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], %2;"
               : "=r"(before)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(counter))), "r"(value)
               : "memory");
  return before;
}
// The warps of a block share one wait through words in shared memory.
MOE_LANES std::uint64_t claimInBlock(std::uint64_t* key, std::uint64_t value) {
  std::uint64_t before;
  asm volatile("atom.relaxed.cta.shared.cas.b64 %0, [%1], 0, %2;"
               : "=l"(before)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(key))), "l"(value)
               : "memory");
  return before;
}
MOE_LANES void giveUpInBlock(std::uint64_t* key) {
  asm volatile(
      "atom.relaxed.cta.shared.exch.b64 _, [%0], 0;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(key)))
      : "memory");
}
// These are atomics, because compute-sanitizer reports plain accesses of two warps as a race.
MOE_LANES void storeInBlock(std::uint32_t* word, std::uint32_t value) {
  asm volatile(
      "atom.release.cta.shared.exch.b32 _, [%0], %1;" ::"r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(word))),
      "r"(value)
      : "memory");
}
MOE_LANES std::uint32_t loadInBlock(std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("atom.acquire.cta.shared.or.b32 %0, [%1], 0;"
               : "=r"(value)
               : "r"(static_cast<std::uint32_t>(__cvta_generic_to_shared(word)))
               : "memory");
  return value;
}
MOE_LANES void fence() {
  asm volatile("fence.acq_rel.sys;" ::: "memory");
}
MOE_LANES std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

}  // namespace cuda_flags

// The Memory of queue_wait.h for GPU threads. Queues lie in host memory, and counters may lie there too, so all
// accesses have system scope.
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
  // A device access, which is done exactly once, and neither split nor merged with another.
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
