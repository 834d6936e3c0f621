#include "topology/nvml.h"

#include <utility>

#include "topology/dynamic_library.h"

namespace moe::topology {
namespace {

// The few values of nvml.h that are used here; its interface is stable.
using Result = int;
using DeviceHandle = void*;
constexpr Result kSuccess = 0;
constexpr unsigned kNvlinksMax = 18;
constexpr int kCapabilityNvlink = 2;  // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int kStatusOk = 0;          // NVML_P2P_STATUS_OK

}  // namespace

struct Nvml::Functions {
  DynamicLibrary library{"libnvidia-ml.so.1"};
  Result (*initialize)() = nullptr;
  Result (*shutdown)() = nullptr;
  Result (*deviceByBusId)(const char*, DeviceHandle*) = nullptr;
  Result (*linkState)(DeviceHandle, unsigned, int*) = nullptr;
  Result (*pairStatus)(DeviceHandle, DeviceHandle, int, int*) = nullptr;

  bool load() {
    return library.find("nvmlInit_v2", initialize) && library.find("nvmlShutdown", shutdown) &&
           library.find("nvmlDeviceGetHandleByPciBusId_v2", deviceByBusId) &&
           library.find("nvmlDeviceGetNvLinkState", linkState) && library.find("nvmlDeviceGetP2PStatus", pairStatus);
  }

  DeviceHandle device(const std::string& busId) const {
    DeviceHandle handle = nullptr;
    return deviceByBusId(busId.c_str(), &handle) == kSuccess ? handle : nullptr;
  }
};

std::unique_ptr<Nvml> Nvml::open() {
  auto functions = std::make_unique<Functions>();
  if (!functions->load() || functions->initialize() != kSuccess) return nullptr;
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() {
  functions_->shutdown();
}

int Nvml::activeNvlinks(const std::string& busId) const {
  const DeviceHandle device = functions_->device(busId);
  if (device == nullptr) return 0;
  int active = 0;
  for (unsigned link = 0; link < kNvlinksMax; ++link) {
    int state = 0;
    if (functions_->linkState(device, link, &state) == kSuccess && state == 1) active += 1;
  }
  return active;
}

bool Nvml::connectedByNvlink(const std::string& busId, const std::string& otherBusId) const {
  const DeviceHandle device = functions_->device(busId);
  const DeviceHandle other = functions_->device(otherBusId);
  int status = kStatusOk + 1;
  return device != nullptr && other != nullptr &&
         functions_->pairStatus(device, other, kCapabilityNvlink, &status) == kSuccess && status == kStatusOk;
}

}  // namespace moe::topology
