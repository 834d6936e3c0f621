#include "backend/cuda_memory.h"

#include "backend/cuda_raii.h"

namespace moe {
namespace {

Memory fromCuda(std::size_t bytes, int device) {
  void* memory = nullptr;
  checkCuda(cudaMalloc(&memory, bytes),
            [&] { return "cannot allocate " + std::to_string(bytes) + " bytes on device " + std::to_string(device); });
  return {static_cast<std::uint8_t*>(memory), [device](std::uint8_t* p) {
            const DeviceScope scope(device);
            cudaFree(p);
          }};
}

}  // namespace

void awaitDevice(int device) noexcept {
  if (device < 0) return;
  const DeviceScope scope(device);
  cudaOk(cudaDeviceSynchronize());
}

Memory allocateDevice(std::size_t bytes, const Allocator& allocator, int kind, int device) {
  const DeviceScope scope(device);
  Memory memory = allocator ? allocator.take(bytes, kind) : fromCuda(bytes, device);
  clearDevice(memory.get(), bytes, device);
  return memory;
}

void clearDevice(std::uint8_t* memory, std::size_t bytes, int device) {
  const DeviceScope scope(device);
  cudaStream_t stream = nullptr;
  checkCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cannot create a stream");
  cudaError_t error = cudaMemsetAsync(memory, 0, bytes, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  checkCuda(error,
            [&] { return "cannot clear " + std::to_string(bytes) + " bytes on device " + std::to_string(device); });
}

Memory allocatePinned(std::size_t bytes, int device) {
  const DeviceScope scope(device);
  void* memory = nullptr;
  checkCuda(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped | cudaHostAllocPortable),
            [&] { return "cannot allocate " + std::to_string(bytes) + " bytes of pinned memory"; });
  std::memset(memory, 0, bytes);
  return {static_cast<std::uint8_t*>(memory), [device](std::uint8_t* p) {
            const DeviceScope scope2(device);
            cudaFreeHost(p);
          }};
}

}  // namespace moe
