// Functions of the CUDA driver. The runtime asks for them, so that the library does not depend on libcuda.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda_raii.h"

namespace moe {

// NULL if the driver does not have it as it was in `version`.
template <class Function>
Function* driverFunction(const char* name, unsigned version) noexcept {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  if (!cudaOk(cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found))) return nullptr;
  return reinterpret_cast<Function*>(entry);
}

// The start of the allocation that contains `pointer`, which must come from cudaMalloc. Throws moeCudaError.
std::uint8_t* allocationOf(std::uint8_t* pointer);

// Whether kernels are loaded at their first launch, CUDA's default since 12.2: CUDA_MODULE_LOADING in the environment.
bool loadsKernelsLazily() noexcept;

}  // namespace moe
