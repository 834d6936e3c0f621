#include "transport/verbs/gpu_driver.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "topology/gpus.h"

namespace moe::verbs {
namespace {

constexpr int kSuccess = 0;
constexpr int kDmaBuf = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

}  // namespace

GpuDriver GpuDriver::load() {
  GpuDriver driver;
  const topology::DynamicLibrary& library = driver.library_;
  const bool complete = library.find("cuInit", driver.initialize_) && library.find("cuDeviceGet", driver.device_) &&
                        library.find("cuDeviceGetPCIBusId", driver.busId_) &&
                        library.find("cuDeviceGetAttribute", driver.attribute_) &&
                        library.find("cuDevicePrimaryCtxRetain", driver.retainContext_) &&
                        library.find("cuDevicePrimaryCtxRelease_v2", driver.releaseContext_) &&
                        library.find("cuCtxPushCurrent_v2", driver.pushContext_) &&
                        library.find("cuCtxPopCurrent_v2", driver.popContext_);
  if (!complete || driver.initialize_(0) != kSuccess) {
    throw Error(moeUnsupported, "RDMA: libcuda.so.1 is not there, too old or shows no GPU");
  }
  library.find("cuMemGetHandleForAddressRange", driver.handleOf_);
  return driver;
}

std::string GpuDriver::busIdOf(int ordinal) const {
  Device device = 0;
  std::array<char, 32> text{};
  if (device_(&device, ordinal) != kSuccess) return "";
  if (busId_(text.data(), static_cast<int>(text.size()), device) != kSuccess) return "";
  std::string id = text.data();
  std::transform(id.begin(), id.end(), id.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return id;
}

bool GpuDriver::ordersWrites(int ordinal) const {
  Device device = 0;
  int order = 0;
  return device_(&device, ordinal) == kSuccess &&
         attribute_(&order, topology::kWritesOrderingAttribute, device) == kSuccess && topology::ordersWrites(order);
}

Fd GpuDriver::exportMemory(int ordinal, std::uint64_t begin, std::size_t bytes, std::string* why) const {
  if (handleOf_ == nullptr) {
    *why = "the NVIDIA driver has no cuMemGetHandleForAddressRange";
    return {};
  }
  Device device = 0;
  Context context = nullptr;
  if (device_(&device, ordinal) != kSuccess || retainContext_(&context, device) != kSuccess) {
    *why = "the GPU has no context";
    return {};
  }
  int fd = -1;
  pushContext_(context);
  const Result result = handleOf_(&fd, begin, bytes, kDmaBuf, 0);
  popContext_(&context);
  releaseContext_(device);
  if (result == kSuccess) return Fd(fd);
  *why = "cuMemGetHandleForAddressRange failed with " + std::to_string(result);
  return {};
}

}  // namespace moe::verbs
