// A window in GPU memory. Processes map it by a file descriptor, those of other hosts by a handle of the NVLink fabric.
// If the caller allocates it or the driver lacks that, they map it by CUDA IPC. Threads of one process use its address.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

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
  CudaWindow(std::size_t bytes, const Allocator& allocator, int device, WindowSharing sharing, bool inFabric)
      : bytes_(bytes), device_(device), inFabric_(inFabric) {
    fabricFirst_ = sharing == WindowSharing::fabric;
    if (!allocator && sharing != WindowSharing::ipc && share()) return;
    callers_ = static_cast<bool>(allocator);
    if (callers_) why_ = "the caller allocates it";
    if (sharing == WindowSharing::fd) throw Error(moeUnsupported, "MOECOMM_WINDOW is fd, but " + why_);
    if (fabricFirst_) throw Error(moeUnsupported, "MOECOMM_WINDOW is fabric, but " + why_);
    memory_ = allocateDevice(bytes, allocator, moeMemoryWindow, device);
  }

  std::string sharing() const override {
    if (fabric_)
      return fabricFirst_ ? "a handle of the NVLink fabric" : "a file descriptor or a handle of the NVLink fabric";
    if (range_) return Window::sharing();
    return why_.empty() ? "CUDA IPC" : "CUDA IPC, as " + why_;
  }

  void describe(WindowCard* card) const override {
    const DeviceScope scope(device_);
    cudaDeviceProp properties{};
    checkCuda(cudaGetDeviceProperties(&properties, device_), "cannot read the device's properties");
    std::memcpy(card->deviceUuid.data(), properties.uuid.bytes, card->deviceUuid.size());
    card->sharedOwner = reinterpret_cast<std::uint64_t>(&memory_);
    card->bytes = bytes_;
    card->sharedBytes = rangeBytes();
    card->inFabric = fabric_ ? 1 : 0;
    card->fabricHandle = fabric_.value_or(FabricHandle{});
    if (range_) return;
    cudaIpcMemHandle_t handle{};
    checkCuda(cudaIpcGetMemHandle(&handle, memory_.get()), "cannot export the window (cudaIpcGetMemHandle)");
    static_assert(sizeof handle == 64);
    std::memcpy(card->ipcHandle.data(), &handle, sizeof handle);
    card->ipcOffset = static_cast<std::uint64_t>(memory_.get() - allocationOf(memory_.get()));
  }

  PeerWindow open(int rank, const WindowCard& mine, const WindowCard& peer, const FetchFd& fetch) const override {
    const DeviceScope scope(device_);
    const std::string whose = "the window of rank " + std::to_string(rank);
    if (mine.host.sameProcess(peer.host)) {
      allowAccess(rank, peer.device);
      return openSameProcess(peer);
    }
    if (peer.sharedBytes != 0) {
      const MemoryHandle handle = handleOf(rank, mine, peer, fetch);
      const std::shared_ptr<AddressRange> range = reserveForPeer(peer.sharedBytes, device_, whose);
      range->map(handle);
      return {memoryOf(range), transportOf(handle, moeTransportCudaIpc), range};
    }
    requireSameHost(rank, mine, peer);
    cudaIpcMemHandle_t handle;
    std::memcpy(&handle, peer.ipcHandle.data(), sizeof handle);
    void* base = nullptr;
    checkCuda(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
              [&] { return "cannot map " + whose + " (cudaIpcOpenMemHandle)"; });
    auto* begin = static_cast<std::uint8_t*>(base);
    return {Memory(begin + peer.ipcOffset,
                   [begin, device = device_](std::uint8_t*) {
                     const DeviceScope scope2(device);
                     cudaIpcCloseMemHandle(begin);
                   }),
            moeTransportCudaIpc};
  }

  PeerWindow openLost(int rank, const WindowCard& peer) const override {
    const std::string whose = "the window of rank " + std::to_string(rank);
    const std::shared_ptr<AddressRange> range = reserveForPeer(peer.sharedBytes, device_, whose);
    range->mapScratch();
    return {memoryOf(range), moeTransportCudaIpc, range};
  }

  std::string whyFixed() const override {
    if (range_) return "";
    if (callers_) return kCallersMemory;
    return fmt::format(
        "is shared by {}, so its memory cannot change under the addresses that other ranks have mapped: "
        "make each rank a process, without MOECOMM_WINDOW=ipc, or destroy the communicator instead",
        sharing());
  }

  void takeAnew() override {
    ExportedMemory exported = shared_->mapNew();
    try {
      clearDevice(range_->base(), bytes_, device_);
    } catch (...) {
      range_->unmap();
      throw;
    }
    keep(std::move(exported));
  }

 private:
  void keep(ExportedMemory exported) {
    fd_ = std::move(exported.fd);
    fabric_ = exported.fabric;
  }

  // False, and why_ says why, if there is no memory that a handle shares.
  bool share() {
    shared_ = reserveDevice(bytes_, device_, inFabric_, &why_);
    if (!shared_) return false;
    range_ = shared_;
    try {
      keep(shared_->mapNew());
    } catch (const Error& error) {
      why_ = error.what();
      range_.reset();
      return false;
    }
    memory_ = memoryOf(range_);
    clearDevice(memory_.get(), bytes_, device_);
    return true;
  }

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
  bool inFabric_;
  std::optional<FabricHandle> fabric_;
  bool callers_ = false;                 // the caller allocates the window
  std::shared_ptr<DeviceRange> shared_;  // range_; NULL: the window is shared by IPC
  std::string why_;                      // why it is
};

}  // namespace

std::unique_ptr<Window> makeCudaWindow(std::size_t bytes, const Allocator& allocator, int device, WindowSharing sharing,
                                       bool inFabric) {
  return std::make_unique<CudaWindow>(bytes, allocator, device, sharing, inFabric);
}

}  // namespace moe
