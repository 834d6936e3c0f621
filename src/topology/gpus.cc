#include "topology/gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <memory>

#include "topology/dynamic_library.h"
#include "topology/nvml.h"
#include "topology/sysfs.h"

namespace moe::topology {
namespace {

// The few values of cuda.h that this file needs. The driver's interface is stable.
using Result = int;
using Device = int;
constexpr Result kSuccess = 0;
constexpr int kMultiprocessorCount = 16;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;
constexpr int kDmaBufSupported = 124;
constexpr int kPeerAtomics = 2;  // CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED

struct Driver {
  DynamicLibrary library{"libcuda.so.1"};
  Result (*initialize)(unsigned) = nullptr;
  Result (*version)(int*) = nullptr;
  Result (*deviceCount)(int*) = nullptr;
  Result (*device)(Device*, int) = nullptr;
  Result (*deviceName)(char*, int, Device) = nullptr;
  Result (*deviceBusId)(char*, int, Device) = nullptr;
  Result (*deviceMemory)(std::size_t*, Device) = nullptr;
  Result (*deviceAttribute)(int*, int, Device) = nullptr;
  Result (*canAccessPeer)(int*, Device, Device) = nullptr;
  Result (*pairAttribute)(int*, int, Device, Device) = nullptr;
  Result (*errorName)(Result, const char**) = nullptr;
  Result (*errorText)(Result, const char**) = nullptr;

  bool load() {
    return library.find("cuInit", initialize) && library.find("cuDriverGetVersion", version) &&
           library.find("cuDeviceGetCount", deviceCount) && library.find("cuDeviceGet", device) &&
           library.find("cuDeviceGetName", deviceName) && library.find("cuDeviceGetPCIBusId", deviceBusId) &&
           library.find("cuDeviceTotalMem_v2", deviceMemory) && library.find("cuDeviceGetAttribute", deviceAttribute) &&
           library.find("cuDeviceCanAccessPeer", canAccessPeer) &&
           library.find("cuDeviceGetP2PAttribute", pairAttribute) && library.find("cuGetErrorName", errorName) &&
           library.find("cuGetErrorString", errorText);
  }

  std::string describe(Result result) const {
    const char* name = nullptr;
    const char* text = nullptr;
    if (errorName(result, &name) != kSuccess || errorText(result, &text) != kSuccess) {
      return fmt::format("error {}", result);
    }
    return fmt::format("{} ({})", name, text);
  }

  int attribute(int which, Device of) const {
    int value = 0;
    deviceAttribute(&value, which, of);
    return value;
  }
};

std::string lowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Gpu describeGpu(const Driver& driver, int ordinal, Device device, const std::filesystem::path& sys) {
  Gpu gpu;
  gpu.ordinal = ordinal;
  std::array<char, 256> text{};
  if (driver.deviceName(text.data(), static_cast<int>(text.size()), device) == kSuccess) gpu.name = text.data();
  text = {};
  if (driver.deviceBusId(text.data(), static_cast<int>(text.size()), device) == kSuccess) {
    gpu.busId = lowerCase(text.data());
  }
  std::size_t bytes = 0;
  if (driver.deviceMemory(&bytes, device) == kSuccess) gpu.memoryBytes = bytes;
  gpu.computeMajor = driver.attribute(kComputeMajor, device);
  gpu.computeMinor = driver.attribute(kComputeMinor, device);
  gpu.multiprocessors = driver.attribute(kMultiprocessorCount, device);
  gpu.dmaBuf = driver.attribute(kDmaBufSupported, device) == 1;
  gpu.ordersWrites = ordersWrites(driver.attribute(kWritesOrderingAttribute, device));
  gpu.numaNode = numaNodeOf(sys / "bus/pci/devices" / gpu.busId);
  return gpu;
}

GpuLink describeLink(const Driver& driver, Device from, Device to) {
  GpuLink link;
  int answer = 0;
  link.peerAccess = driver.canAccessPeer(&answer, from, to) == kSuccess && answer == 1;
  link.atomics = driver.pairAttribute(&answer, kPeerAtomics, from, to) == kSuccess && answer == 1;
  return link;
}

void addNvlinks(GpuInventory& inventory) {
  const std::unique_ptr<Nvml> nvml = Nvml::open();
  if (!nvml) return;
  for (std::size_t from = 0; from < inventory.gpus.size(); ++from) {
    Gpu& gpu = inventory.gpus[from];
    gpu.nvlinks = nvml->activeNvlinks(gpu.busId);
    if (const auto clique = nvml->fabricClique(gpu.busId)) gpu.fabric = describe(*clique);
    for (std::size_t to = 0; to < inventory.gpus.size(); ++to) {
      if (from != to) inventory.links[from][to].nvlink = nvml->connectedByNvlink(gpu.busId, inventory.gpus[to].busId);
    }
  }
}

}  // namespace

GpuInventory findGpus(const std::filesystem::path& sys, const std::filesystem::path& dev) {
  GpuInventory inventory;
  inventory.imexChannel = !listNames(dev / "nvidia-caps-imex-channels").empty();
  Driver driver;
  if (!driver.library.found()) {
    inventory.reason = "libcuda.so.1 not found: no NVIDIA driver on this machine";
    return inventory;
  }
  if (!driver.load()) {
    inventory.reason = "libcuda.so.1 lacks a function: the NVIDIA driver is too old";
    return inventory;
  }
  int count = 0;
  Result result = driver.initialize(0);
  if (result == kSuccess) result = driver.deviceCount(&count);
  if (result != kSuccess || count == 0) {
    inventory.reason = result != kSuccess ? "cuInit: " + driver.describe(result) : "the NVIDIA driver shows no GPU";
    return inventory;
  }
  driver.version(&inventory.driverVersion);
  std::vector<Device> devices(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    Device& device = devices[static_cast<std::size_t>(ordinal)];
    driver.device(&device, ordinal);
    inventory.gpus.push_back(describeGpu(driver, ordinal, device, sys));
  }
  for (const Device from : devices) {
    auto& row = inventory.links.emplace_back();
    for (const Device to : devices)
      row.push_back(from == to ? GpuLink{true, true, false} : describeLink(driver, from, to));
  }
  addNvlinks(inventory);
  return inventory;
}

}  // namespace moe::topology
