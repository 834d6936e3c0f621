// Memory and error checks for the tests' own kernels.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace moe::test {

inline void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

template <class Element>
auto allocate(std::size_t count) {
  Element* memory = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&memory), count * sizeof(Element)), "cudaMalloc");
  return std::unique_ptr<Element, decltype(&cudaFree)>(memory, &cudaFree);
}

}  // namespace moe::test
