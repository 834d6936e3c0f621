// Owners and checks for the CUDA runtime, and functions of the driver, for files that are built with CUDA.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <type_traits>

#include "base/error.h"

namespace moe {

inline std::string cudaText(cudaError_t error) {
  return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}

// Checks a call whose failure the library reports or handles itself, and clears CUDA's last error, so that the program
// does not find it there. Returns true if there was no error.
inline bool cudaOk(cudaError_t error) noexcept {
  if (error == cudaSuccess) return true;
  cudaGetLastError();
  return false;
}

// Throws moeCudaError "what: <CUDA's text>". `what` is a text, or a function that makes one. A function runs only if
// the call failed.
inline void checkCuda(cudaError_t error, const char* what) {
  if (!cudaOk(error)) throw Error(moeCudaError, std::string(what) + ": " + cudaText(error));
}
template <class What>
requires std::is_invocable_r_v<std::string, What>
void checkCuda(cudaError_t error, What what) {
  if (!cudaOk(error)) throw Error(moeCudaError, what() + ": " + cudaText(error));
}

// A function of the driver, for which the runtime asks, so that the library does not depend on libcuda. NULL if the
// driver does not have it as it was in `version`.
template <class Function>
Function* driverFunction(const char* name, unsigned version) noexcept {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (!cudaOk(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found))) return nullptr;
  return reinterpret_cast<Function*>(entry);
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
