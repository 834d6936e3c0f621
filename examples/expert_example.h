// What the examples with experts of their own share: checks of calls, memory, and a routing whose right sums are known.
#pragma once

#include <cuda_runtime.h>
#include <moecomm.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(comm, call)                                           \
  if (const moeResult_t result = (call); result != moeSuccess) {    \
    std::fprintf(stderr, "%s: %s\n", #call, moeGetLastError(comm)); \
    std::exit(1);                                                   \
  }
#define CHECK_CUDA(call)                                                \
  if (const cudaError_t error = (call); error != cudaSuccess) {         \
    std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error)); \
    std::exit(1);                                                       \
  }

template <class T>
T* onDevice(std::size_t count) {
  void* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, count * sizeof(T)));
  CHECK_CUDA(cudaMemset(memory, 0, count * sizeof(T)));
  return static_cast<T*>(memory);
}

// What global expert `expert` multiplies by: so little that bf16 holds the sums of small numbers exactly.
__host__ __device__ inline float factorOf(int expert) {
  return static_cast<float>(expert % 4 + 1);
}

struct Routing {
  std::vector<int32_t> experts;
  std::vector<float> sums;  // sums of the factors of a token's experts
};
inline Routing drawRouting(int rank, int tokens, int topk, int experts) {
  Routing routing;
  unsigned state = 12345u + 977u * static_cast<unsigned>(rank);
  for (int t = 0; t < tokens; ++t) {
    float sum = 0;
    std::vector<int32_t> chosen;
    while (static_cast<int>(chosen.size()) < topk) {
      state = state * 1664525u + 1013904223u;
      const auto expert = static_cast<int32_t>((state >> 8) % static_cast<unsigned>(experts));
      if (std::find(chosen.begin(), chosen.end(), expert) != chosen.end()) continue;
      chosen.push_back(expert);
      sum += factorOf(expert);
    }
    routing.experts.insert(routing.experts.end(), chosen.begin(), chosen.end());
    routing.sums.push_back(sum);
  }
  return routing;
}
