// Memory of CUDA's virtual memory management, which processes share by file descriptors and by handles of the NVLink
// fabric.
#include <cuda.h>

#include <utility>

#include "backend/cuda_memory.h"
#include "backend/cuda_raii.h"
#include "device/lanes.h"

namespace moe {
namespace {

constexpr const char* kImport = "cuMemImportFromShareableHandle";
constexpr const char* kExport = "cuMemExportToShareableHandle";

// The functions of the driver that this file calls.
struct Driver {
  template <class Function>
  using Of = Function*;

  Of<decltype(cuGetErrorString)> errorString = find<decltype(cuGetErrorString)>("cuGetErrorString", 6000);
  Of<decltype(cuDeviceGetAttribute)> attribute = find<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute", 2000);
  Of<decltype(cuMemGetAllocationGranularity)> granularity =
      find<decltype(cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity", 10020);
  Of<decltype(cuMemCreate)> create = find<decltype(cuMemCreate)>("cuMemCreate", 10020);
  Of<decltype(cuMemRelease)> release = find<decltype(cuMemRelease)>("cuMemRelease", 10020);
  Of<decltype(cuMemAddressReserve)> reserve = find<decltype(cuMemAddressReserve)>("cuMemAddressReserve", 10020);
  Of<decltype(cuMemAddressFree)> giveBack = find<decltype(cuMemAddressFree)>("cuMemAddressFree", 10020);
  Of<decltype(cuMemMap)> map = find<decltype(cuMemMap)>("cuMemMap", 10020);
  Of<decltype(cuMemUnmap)> unmap = find<decltype(cuMemUnmap)>("cuMemUnmap", 10020);
  Of<decltype(cuMemSetAccess)> setAccess = find<decltype(cuMemSetAccess)>("cuMemSetAccess", 10020);
  Of<decltype(cuMemExportToShareableHandle)> exportTo =
      find<decltype(cuMemExportToShareableHandle)>("cuMemExportToShareableHandle", 10020);
  Of<decltype(cuMemImportFromShareableHandle)> importFrom =
      find<decltype(cuMemImportFromShareableHandle)>("cuMemImportFromShareableHandle", 10020);
  bool whole = true;

  static const Driver& get() {
    static const Driver driver;
    return driver;
  }

 private:
  template <class Function>
  Function* find(const char* name, unsigned version) {
    auto* function = driverFunction<Function>(name, version);
    whole = whole && function != nullptr;
    return function;
  }
};

std::string textOf(CUresult error) {
  const char* text = nullptr;
  if (Driver::get().errorString(error, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  return std::to_string(error) + " (" + text + ")";
}
void check(CUresult error, const char* function, const std::string& whose) {
  if (error != CUDA_SUCCESS) throw Error(moeCudaError, std::string(function) + " of " + whose + ": " + textOf(error));
}

bool has(CUdevice_attribute attribute, int device) {
  int value = 0;
  return Driver::get().attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

CUmemAllocationProp propertiesOf(int device, bool inFabric) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  const int kinds = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | (inFabric ? CU_MEM_HANDLE_TYPE_FABRIC : 0);
  properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(kinds);
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.allocFlags.gpuDirectRDMACapable = 1;
  return properties;
}

// The unit of a device's shared memory.
std::size_t granularityOf(const CUmemAllocationProp& properties, const std::string& whose) {
  std::size_t granularity = 0;
  check(Driver::get().granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity", whose);
  return granularity;
}

// Releases the handle. Mappings keep the memory.
class Handle {
 public:
  explicit Handle(CUmemGenericAllocationHandle handle) : handle_(handle) {}
  ~Handle() {
    if (handle_ != 0) Driver::get().release(handle_);
  }
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, 0)) {}
  Handle& operator=(Handle&&) = delete;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_;
};

Handle create(std::size_t bytes, const CUmemAllocationProp& properties, const std::string& whose) {
  CUmemGenericAllocationHandle created{};
  check(Driver::get().create(&created, bytes, &properties, 0), "cuMemCreate", whose);
  return Handle(created);
}

Handle import(const MemoryHandle& handle, const std::string& whose) {
  CUmemGenericAllocationHandle imported{};
  if (const auto* fabric = std::get_if<FabricHandle>(&handle)) {
    FabricHandle bytes = *fabric;
    check(Driver::get().importFrom(&imported, bytes.data(), CU_MEM_HANDLE_TYPE_FABRIC), kImport, whose);
    return Handle(imported);
  }
  // The driver takes the descriptor's number for a pointer.
  const auto fd = static_cast<std::intptr_t>(std::get<Fd>(handle).get());
  check(Driver::get().importFrom(&imported, reinterpret_cast<void*>(fd),  // NOLINT(performance-no-int-to-ptr)
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        kImport, whose);
  return Handle(imported);
}

Fd exportFd(const Handle& handle, const std::string& whose) {
  int fd = -1;
  check(Driver::get().exportTo(&fd, handle.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), kExport, whose);
  return Fd(fd);
}

FabricHandle exportToFabric(const Handle& handle, const std::string& whose) {
  static_assert(sizeof(CUmemFabricHandle) == sizeof(FabricHandle));
  FabricHandle exported{};
  check(Driver::get().exportTo(exported.data(), handle.get(), CU_MEM_HANDLE_TYPE_FABRIC, 0), kExport, whose);
  return exported;
}

class SharedRange final : public DeviceRange {
 public:
  SharedRange(std::size_t bytes, int device, bool inFabric, std::string whose)
      : device_(device), inFabric_(inFabric), whose_(std::move(whose)) {
    CUdeviceptr at = 0;
    check(Driver::get().reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve", whose_);
    base_ = reinterpret_cast<std::uint8_t*>(at);  // NOLINT(performance-no-int-to-ptr)
    bytes_ = bytes;
  }
  ~SharedRange() override {
    const DeviceScope scope(device_);
    if (mapped_) Driver::get().unmap(address(), bytes_);
    Driver::get().giveBack(address(), bytes_);
  }

  void unmap() override {
    if (!mapped_) return;
    const DeviceScope scope(device_);
    check(Driver::get().unmap(address(), bytes_), "cuMemUnmap", whose_);
    mapped_ = false;
  }

  void map(const MemoryHandle& handle) override {
    const DeviceScope scope(device_);
    mapHandle(import(handle, whose_));
  }

  ExportedMemory mapNew() override {
    const DeviceScope scope(device_);
    const Handle handle = create(bytes_, propertiesOf(device_, inFabric_), whose_);
    ExportedMemory exported{exportFd(handle, whose_), std::nullopt};
    if (inFabric_) exported.fabric = exportToFabric(handle, whose_);
    mapHandle(handle);
    return exported;
  }

  // One piece of memory, mapped again and again.
  void mapScratch() override {
    unmap();
    const DeviceScope scope(device_);
    const CUmemAllocationProp properties = propertiesOf(device_, false);
    const std::size_t piece = granularityOf(properties, whose_);
    const Handle handle = create(piece, properties, whose_);
    for (std::size_t at = 0; at < bytes_; at += piece) {
      const CUresult mapped = Driver::get().map(address() + at, piece, 0, handle.get(), 0);
      if (mapped != CUDA_SUCCESS && at > 0) Driver::get().unmap(address(), at);
      check(mapped, "cuMemMap", whose_);
    }
    allowAccess();
  }

 private:
  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(base_); }

  void mapHandle(const Handle& handle) {
    check(Driver::get().map(address(), bytes_, 0, handle.get(), 0), "cuMemMap", whose_);
    allowAccess();
  }
  void allowAccess() {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device_}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const CUresult allowed = Driver::get().setAccess(address(), bytes_, &access, 1);
    if (allowed != CUDA_SUCCESS) Driver::get().unmap(address(), bytes_);
    check(allowed, "cuMemSetAccess", whose_);
    mapped_ = true;
  }

  int device_;
  bool inFabric_;
  std::string whose_;
};

std::size_t wholeBytes(std::size_t bytes, const CUmemAllocationProp& properties, const std::string& whose) {
  const auto piece = static_cast<std::int64_t>(granularityOf(properties, whose));
  return static_cast<std::size_t>(roundUp(static_cast<std::int64_t>(bytes), piece));
}

}  // namespace

std::shared_ptr<DeviceRange> reserveDevice(std::size_t bytes, int device, bool inFabric, std::string* why) {
  const DeviceScope scope(device);
  const auto lacks = [&](const char* what) {
    *why = what;
    return nullptr;
  };
  if (!Driver::get().whole) return lacks("the driver has no virtual memory management");
  if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) ||
      !has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device)) {
    return lacks("the device cannot share memory by file descriptors");
  }
  if (!has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device)) {
    return lacks("adapters could not reach memory that is shared by a file descriptor");
  }
  try {
    const std::string whose = "the window";
    const std::size_t whole = wholeBytes(bytes, propertiesOf(device, inFabric), whose);
    return std::make_shared<SharedRange>(whole, device, inFabric, whose);
  } catch (const Error& error) {
    *why = error.what();
    return nullptr;
  }
}

std::shared_ptr<DeviceRange> reserveForPeer(std::size_t bytes, int device, const std::string& whose) {
  const DeviceScope scope(device);
  if (!Driver::get().whole) {
    throw Error(moeCudaError, "cannot map " + whose + ": the driver has no virtual memory management");
  }
  return std::make_shared<SharedRange>(bytes, device, false, whose);
}

std::shared_ptr<const FabricHandle> makeFabricSample(int device, std::string* why) {
  struct Sample {
    Handle memory;
    FabricHandle handle;
  };
  const DeviceScope scope(device);
  if (!Driver::get().whole || !has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, device)) {
    *why = "the device cannot share memory by handles of the fabric";
    return nullptr;
  }
  try {
    const std::string whose = "memory for the fabric";
    const CUmemAllocationProp properties = propertiesOf(device, true);
    Handle memory = create(granularityOf(properties, whose), properties, whose);
    const FabricHandle handle = exportToFabric(memory, whose);
    const auto sample = std::make_shared<Sample>(Sample{std::move(memory), handle});
    return {sample, &sample->handle};
  } catch (const Error& error) {
    *why = error.what();
    return nullptr;
  }
}

std::string whyNotImported(const FabricHandle& handle, int device) {
  const DeviceScope scope(device);
  try {
    import(handle, "its memory");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace moe
