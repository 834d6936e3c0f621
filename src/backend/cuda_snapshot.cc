// Both copies and clock readings have a stream of their own, which waits for no other. A copy needs no multiprocessor,
// so it passes kernels that hang; the kernel that reads the clock may have to wait for one, and then an earlier reading
// counts. The constructor makes the first copy and reading while no step runs, so that the runtime has nothing left to
// set up.

#include <algorithm>
#include <atomic>
#include <thread>

#include "backend/cuda_memory.h"
#include "backend/cuda_own_stream.h"
#include "device/kernels/kernels.h"

namespace moe {
namespace {

constexpr std::chrono::milliseconds kFirst{1000};  // for the first reading
constexpr int kReadings = 8;
constexpr const char* kNoStream = "cannot create a stream for the recorder";

class CudaSnapshot final : public Snapshot {
 public:
  CudaSnapshot(const std::uint64_t* memory, std::size_t bytesMax, int device)
      : device_(device),
        copy_(allocatePinned(bytesMax, device)),
        word_(allocatePinned(sizeof(std::uint64_t), device)),
        copies_(device, kNoStream),
        clocks_(device, kNoStream) {
    const Deadline end = Deadline::after(kFirst);
    take(memory, bytesMax, end);
    clock(end);
  }
  // Copies and kernels that are still under way write to the pinned memory. cudaFreeHost waits for them.
  ~CudaSnapshot() override = default;

  const std::uint8_t* take(const std::uint64_t* memory, std::size_t bytes, Deadline end) override {
    const DeviceScope scope(device_);
    const CaptureIsOthers relaxed;
    if (!copies_.drained(end)) return nullptr;  // waits for copies of an earlier call that was given up
    if (!cudaOk(cudaMemcpyAsync(copy_.get(), memory, bytes, cudaMemcpyDeviceToHost, copies_.get()))) return nullptr;
    return copies_.drained(end) ? copy_.get() : nullptr;
  }

  ClockReading clock(Deadline end) override {
    const DeviceScope scope(device_);
    const CaptureIsOthers relaxed;
    ClockReading best{0, 0, INT64_MAX};
    for (int i = 0; i < kReadings && clocks_.drained(end); ++i) {
      const ClockReading reading = readOnce(end);
      if (reading.errorNs < best.errorNs) best = reading;
    }
    if (best.errorNs != INT64_MAX) reading_ = best;
    return reading_;
  }

 private:
  // The kernel reads its clock between the launch and the moment when the host sees the word.
  ClockReading readOnce(Deadline end) const {
    const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(word_.get()));
    word.store(0, std::memory_order_relaxed);
    const std::int64_t before = wallClock();
    if (!cudaOk(launchClock(reinterpret_cast<std::uint64_t*>(word_.get()), clocks_.get()))) return {0, 0, INT64_MAX};
    while (word.load(std::memory_order_acquire) == 0) {
      if (end.expired()) return {0, 0, INT64_MAX};
    }
    const std::int64_t took = wallClock() - before;
    return {static_cast<std::int64_t>(word.load(std::memory_order_relaxed)), before + took / 2, took / 2 + 1};
  }

  int device_;
  Memory copy_, word_;
  OwnStream copies_, clocks_;
  ClockReading reading_{0, 0, INT64_MAX};
};

}  // namespace

std::unique_ptr<Snapshot> makeCudaSnapshot(const std::uint64_t* memory, std::size_t bytesMax, int device) {
  return std::make_unique<CudaSnapshot>(memory, bytesMax, device);
}

}  // namespace moe
