#include <cuda.h>

#include "backend/cuda_memory.h"
#include "backend/cuda_raii.h"
#include "device/lanes.h"

namespace moe {
namespace {

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

CUmemAllocationProp propertiesOf(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  properties.allocFlags.gpuDirectRDMACapable = 1;
  return properties;
}

// Releases the handle. Mappings keep the memory.
class Handle {
 public:
  explicit Handle(CUmemGenericAllocationHandle handle) : handle_(handle) {}
  ~Handle() { Driver::get().release(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_;
};

// Maps the memory of a handle at an address of the driver's choice, for `device`.
Memory mapHandle(const Handle& handle, std::size_t bytes, int device, const std::string& whose) {
  const Driver& driver = Driver::get();
  CUdeviceptr at = 0;
  check(driver.reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve", whose);
  const CUresult mapped = driver.map(at, bytes, 0, handle.get(), 0);
  if (mapped != CUDA_SUCCESS) driver.giveBack(at, bytes);
  check(mapped, "cuMemMap", whose);
  Memory memory(reinterpret_cast<std::uint8_t*>(at), [bytes, device](std::uint8_t* p) {  // NOLINT(performance-*)
    const DeviceScope scope(device);
    const auto address = reinterpret_cast<CUdeviceptr>(p);
    Driver::get().unmap(address, bytes);
    Driver::get().giveBack(address, bytes);
  });
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(driver.setAccess(at, bytes, &access, 1), "cuMemSetAccess", whose);
  return memory;
}

SharedDeviceMemory allocate(std::size_t bytes, int device) {
  const Driver& driver = Driver::get();
  const std::string whose = "the window";
  const CUmemAllocationProp properties = propertiesOf(device);
  std::size_t granularity = 0;
  check(driver.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
        "cuMemGetAllocationGranularity", whose);
  const auto whole =
      static_cast<std::size_t>(roundUp(static_cast<std::int64_t>(bytes), static_cast<std::int64_t>(granularity)));
  CUmemGenericAllocationHandle created{};
  check(driver.create(&created, whole, &properties, 0), "cuMemCreate", whose);
  const Handle handle(created);
  int fd = -1;
  check(driver.exportTo(&fd, handle.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "cuMemExportToShareableHandle",
        whose);
  Fd owned(fd);
  return {mapHandle(handle, whole, device, whose), whole, std::move(owned)};
}

}  // namespace

std::optional<SharedDeviceMemory> allocateSharedDevice(std::size_t bytes, int device, std::string* why) {
  const DeviceScope scope(device);
  const auto lacks = [&](const char* what) {
    *why = what;
    return std::nullopt;
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
    return allocate(bytes, device);
  } catch (const Error& error) {
    *why = error.what();
    return std::nullopt;
  }
}

Memory mapSharedDevice(int fd, std::size_t bytes, int device, const std::string& whose) {
  const DeviceScope scope(device);
  if (!Driver::get().whole) {
    throw Error(moeCudaError, "cannot map " + whose + ": the driver has no virtual memory management");
  }
  CUmemGenericAllocationHandle imported{};
  // The driver takes the descriptor's number for a pointer.
  check(Driver::get().importFrom(&imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)),  // NOLINT
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle", whose);
  return mapHandle(Handle(imported), bytes, device, whose);
}

}  // namespace moe
