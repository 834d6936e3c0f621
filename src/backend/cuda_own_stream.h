// A stream of the library's own, for copies while steps run. A copy needs no multiprocessor, so it passes kernels that
// hang.
#pragma once

#include <cuda_runtime.h>

#include <chrono>
#include <thread>

#include "backend/cuda_raii.h"
#include "base/deadline.h"

namespace moe {

// While it lives, calls of this thread do not disturb captures of other threads.
class CaptureIsOthers {
 public:
  CaptureIsOthers() noexcept { cudaOk(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~CaptureIsOthers() { cudaOk(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  CaptureIsOthers(const CaptureIsOthers&) = delete;
  CaptureIsOthers& operator=(const CaptureIsOthers&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// It waits for no other stream. `failure`: what is said if it cannot be made.
class OwnStream {
 public:
  OwnStream(int device, const char* failure) {
    const DeviceScope scope(device);
    checkCuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), failure);
  }
  ~OwnStream() { cudaOk(cudaStreamDestroy(stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  cudaStream_t get() const { return stream_; }
  // False if its work has not ended by `end`.
  bool drained(Deadline end) const {
    for (int looks = 0;; ++looks) {
      const cudaError_t state = cudaStreamQuery(stream_);
      if (state != cudaErrorNotReady) return cudaOk(state);
      cudaGetLastError();
      if (end.expired()) return false;
      if (looks < kLooksAtOnce) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

 private:
  static constexpr int kLooksAtOnce = 100;  // a copy of some words does not take long

  cudaStream_t stream_ = nullptr;
};

}  // namespace moe
