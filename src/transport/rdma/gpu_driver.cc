#include "transport/rdma/gpu_driver.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "topology/gpus.h"

namespace moe::verbs {
namespace {

constexpr int kSuccess = 0;
constexpr int kDmaBuf = 1;          // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD
constexpr int kSyncOperations = 6;  // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS

}  // namespace

GpuDriver GpuDriver::load(const std::string& name) {
  GpuDriver driver(name);
  const topology::DynamicLibrary& library = driver.library;
  const bool complete = library.find("cuInit", driver.initialize) && library.find("cuDeviceGet", driver.device) &&
                        library.find("cuDeviceGetPCIBusId", driver.busId) &&
                        library.find("cuDeviceGetAttribute", driver.attribute) &&
                        library.find("cuDevicePrimaryCtxRetain", driver.retainContext) &&
                        library.find("cuDevicePrimaryCtxRelease_v2", driver.releaseContext) &&
                        library.find("cuCtxPushCurrent_v2", driver.pushContext) &&
                        library.find("cuCtxPopCurrent_v2", driver.popContext) &&
                        library.find("cuPointerSetAttribute", driver.setPointerAttribute);
  if (!complete || driver.initialize(0) != kSuccess) {
    throw Error(moeUnsupported, "RDMA: " + name + " is missing, too old, or shows no GPU");
  }
  library.find("cuMemGetHandleForAddressRange", driver.handleOf);
  return driver;
}

// The result of `call` in the CUDA runtime's context, or the driver's error if there is none.
template <class Call>
GpuDriver::Result GpuDriver::inContext(int ordinal, Call call) const {
  Device gpu = 0;
  Context context = nullptr;
  Result result = device(&gpu, ordinal);
  if (result == kSuccess) result = retainContext(&context, gpu);
  if (result != kSuccess) return result;
  result = pushContext(context);
  if (result == kSuccess) {
    result = call();
    popContext(&context);
  }
  releaseContext(gpu);
  return result;
}

std::string GpuDriver::busIdOf(int ordinal) const {
  Device gpu = 0;
  std::array<char, 32> text{};
  if (device(&gpu, ordinal) != kSuccess) return "";
  if (busId(text.data(), static_cast<int>(text.size()), gpu) != kSuccess) return "";
  std::string id = text.data();
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return id;
}

bool GpuDriver::ordersWrites(int ordinal) const {
  Device gpu = 0;
  int order = 0;
  return device(&gpu, ordinal) == kSuccess && attribute(&order, topology::kWritesOrderingAttribute, gpu) == kSuccess &&
         topology::ordersWrites(order);
}

Fd GpuDriver::exportMemory(int ordinal, std::uint64_t begin, std::size_t bytes, std::string* why) const {
  if (handleOf == nullptr) {
    *why = "the NVIDIA driver has no cuMemGetHandleForAddressRange";
    return {};
  }
  int fd = -1;
  const Result result = inContext(ordinal, [&] { return handleOf(&fd, begin, bytes, kDmaBuf, 0); });
  if (result == kSuccess) return Fd(fd);
  *why = "cuMemGetHandleForAddressRange failed with " + std::to_string(result);
  return {};
}

bool GpuDriver::finishCopiesInTime(int ordinal, std::uint64_t address) const {
  const unsigned on = 1;
  return inContext(ordinal, [&] { return setPointerAttribute(&on, kSyncOperations, address); }) == kSuccess;
}

}  // namespace moe::verbs
