// How a kernel records its step (view/step_record.h). The first lane of the last warp does it, because this warp ends
// the epoch and, in a divided dispatch, waits for the rows. The lane notes when the step has begun, and keeps the
// address of the record in shared memory until its warp is done. Other warps may end a little later. Waits of a kernel
// are not recorded, except by the step that follows an operation with statistics (protocol/report/tally.h).
#pragma once

#include "device/policy/cuda/warp.h"
#include "device/view/step_record.h"

namespace moe {

class KernelRecord {
 public:
  // All threads call it when the kernel has followed its predecessor.
  template <Step kStep>
  static MOE_LANES void begin(const StepParams& p) {
    if (isWriter<kStep>(p)) write<kStep>(p, cuda_flags::nanoseconds());
  }
  // The same, called later, for a kernel that began at `began`.
  template <Step kStep>
  static MOE_LANES void begin(const StepParams& p, std::uint64_t began) {
    if (isWriter<kStep>(p)) write<kStep>(p, began);
  }
  // The time. Only the thread that writes the record reads the clock, because a read takes as long as loading a word.
  template <Step kStep>
  static MOE_LANES std::uint64_t now(const StepParams& p) {
    return isWriter<kStep>(p) ? cuda_flags::nanoseconds() : 0;
  }

  // All threads call it at the end of a kernel whose record has begun.
  template <Step kStep>
  static MOE_LANES void end(const StepParams& p) {
    if (isWriter<kStep>(p)) open()->end = cuda_flags::nanoseconds();
  }

 private:
  template <Step kStep>
  static MOE_LANES void write(const StepParams& p, std::uint64_t began) {
    constexpr StepRow kRow = rowOf(kStep);
    StepRecorder* ring = p.comm.recorder;
    const std::uint64_t number = ring->steps + 1, epoch = epochOf(kRow, p);
    StepRecord* record = ring->of(number);
    store(&record->number, number, epoch);
    store(&record->begin, began, 0);
    store(&record->firstWaitEnd, 0, 0);
    store(&record->what, whatWord(kStep, p.phases, p.handle.number), sizeOf(kRow, p));
    ring->steps = number;
    open() = record;
  }

  template <Step kStep>
  static MOE_LANES bool isWriter(const StepParams& p) {
    constexpr bool kRecorded = rowOf(kStep).waits();
    return kRecorded && p.comm.recorder != nullptr && threadIdx.x == blockDim.x - CudaWarp::kLanes &&
           blockIdx.x == gridDim.x - 1;
  }

  // Stores two words of a record with one instruction.
  static MOE_LANES void store(std::uint64_t* to, std::uint64_t first, std::uint64_t second) {
    *reinterpret_cast<ulonglong2*>(to) = make_ulonglong2(first, second);
  }

  static MOE_LANES StepRecord*& open() {
    __shared__ StepRecord* record;
    return record;
  }
};

}  // namespace moe
