// A window in GPU memory. Processes map it by CUDA IPC. Threads of one process use its address.
#include <cuda_runtime_api.h>

#include <cstring>

#include "backend/cuda_memory.h"
#include "backend/cuda_raii.h"
#include "transport/window.h"

namespace moe {
namespace {

// The start of the allocation that contains `pointer`, which must come from cudaMalloc. Throws moeCudaError.
std::uint8_t* allocationOf(std::uint8_t* pointer) {
  auto* addressRange =
      driverFunction<int(unsigned long long*, std::size_t*, unsigned long long)>("cuMemGetAddressRange", 12000);
  if (addressRange == nullptr) throw Error(moeCudaError, "cannot find cuMemGetAddressRange in the driver");
  unsigned long long base = 0;
  std::size_t bytes = 0;
  const int error = addressRange(&base, &bytes, reinterpret_cast<unsigned long long>(pointer));
  if (error != 0) {
    throw Error(moeCudaError,
                "cuMemGetAddressRange failed with " + std::to_string(error) + ": the window must come from cudaMalloc");
  }
  return reinterpret_cast<std::uint8_t*>(base);
}

class CudaWindow final : public Window {
 public:
  CudaWindow(std::size_t bytes, const Allocator& allocator, int device) : bytes_(bytes), device_(device) {
    memory_ = allocateDevice(bytes, allocator, moeMemoryWindow, device);
  }

  void describe(WindowCard* card) const override {
    const DeviceScope scope(device_);
    cudaDeviceProp properties{};
    checkCuda(cudaGetDeviceProperties(&properties, device_), "cannot read the device's properties");
    std::memcpy(card->deviceUuid.data(), properties.uuid.bytes, card->deviceUuid.size());
    cudaIpcMemHandle_t handle{};
    checkCuda(cudaIpcGetMemHandle(&handle, memory_.get()), "cannot export the window (cudaIpcGetMemHandle)");
    static_assert(sizeof handle == 64);
    std::memcpy(card->ipcHandle.data(), &handle, sizeof handle);
    card->ipcOffset = static_cast<std::uint64_t>(memory_.get() - allocationOf(memory_.get()));
    card->sharedOwner = reinterpret_cast<std::uint64_t>(&memory_);
    card->bytes = bytes_;
  }

  PeerWindow open(int rank, const WindowCard& mine, const WindowCard& peer, const FetchFd&) const override {
    const DeviceScope scope(device_);
    requireSameHost(rank, mine, peer);
    if (mine.host.sameProcess(peer.host)) {
      allowAccess(rank, peer.device);
      return openSameProcess(peer);
    }
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, peer.ipcHandle.data(), sizeof handle);
    void* base = nullptr;
    checkCuda(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
              [&] { return "cannot map the window of rank " + std::to_string(rank) + " (cudaIpcOpenMemHandle)"; });
    auto* begin = static_cast<std::uint8_t*>(base);
    return {Memory(begin + peer.ipcOffset,
                   [begin, device = device_](std::uint8_t*) {
                     const DeviceScope scope2(device);
                     cudaIpcCloseMemHandle(begin);
                   }),
            moeTransportCudaIpc};
  }

 private:
  void allowAccess(int rank, int peerDevice) const {
    if (peerDevice == device_) return;
    int able = 0;
    checkCuda(cudaDeviceCanAccessPeer(&able, device_, peerDevice), "cannot ask for peer access");
    if (able == 0) {
      throw Error(moeUnsupported, "device " + std::to_string(device_) + " cannot access device " +
                                      std::to_string(peerDevice) + " of rank " + std::to_string(rank));
    }
    const cudaError_t error = cudaDeviceEnablePeerAccess(peerDevice, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
      return;
    }
    checkCuda(error, [&] { return "cannot enable access to device " + std::to_string(peerDevice); });
  }

  std::size_t bytes_;
  int device_;
};

}  // namespace

std::unique_ptr<Window> makeCudaWindow(std::size_t bytes, const Allocator& allocator, int device) {
  return std::make_unique<CudaWindow>(bytes, allocator, device);
}

}  // namespace moe
