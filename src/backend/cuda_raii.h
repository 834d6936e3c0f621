// Owners and checks for the CUDA runtime. Only files that are built with CUDA include it.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "base/error.h"

namespace moe {

inline std::string cudaText(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}

// Throws moeCudaError "what: <CUDA's text>".
inline void checkCuda(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // a failure that we report is not left for the caller's next check
  throw Error(moeCudaError, what + ": " + cudaText(error));
}

// Makes a device current for a scope.
class DeviceScope {
 public:
  explicit DeviceScope(int device) noexcept {
    cudaGetDevice(&before_);
    if (before_ != device) cudaSetDevice(device);
    changed_ = before_ != device;
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace moe
