#include "topology/nvml.h"

#include <iterator>
#include <utility>

#include "topology/dynamic_library.h"

namespace moe::topology {
namespace {

// The few values of nvml.h that this file needs. Its interface is stable.
using Result = int;
using DeviceHandle = void*;
constexpr Result kNvmlSuccess = 0;
constexpr unsigned kNvlinksMax = 18;
constexpr int kCapabilityNvlink = 2;    // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int kStatusOk = 0;            // NVML_P2P_STATUS_OK
constexpr unsigned kNvlinkSpeed = 164;  // NVML_FI_DEV_NVLINK_GET_SPEED: MB/s of the link given as scope
constexpr int kUnsignedValue = 1;       // NVML_VALUE_TYPE_UNSIGNED_INT

// MB/s of a link of this version, for drivers that do not report it.
double megabytesOfVersion(unsigned version) {
  constexpr double kMegabytes[] = {0, 20000, 25000, 25000, 26562.5, 53125};
  return version < std::size(kMegabytes) ? kMegabytes[version] : 0;
}

}  // namespace

struct Nvml::Functions {
  // Not in the unnamed namespace: GCC 13.2 crashes on that in unity builds, such as that of scripts/demo.sh.
  struct FieldValue {
    unsigned field, scope;
    long long timestamp, latency;
    int type;
    Result result;
    union {
      unsigned number;
      unsigned long long largest;
    } value;
  };
  static_assert(sizeof(FieldValue) == 40);

  DynamicLibrary library{"libnvidia-ml.so.1"};
  Result (*initialize)() = nullptr;
  Result (*shutdown)() = nullptr;
  Result (*deviceByBusId)(const char*, DeviceHandle*) = nullptr;
  Result (*linkState)(DeviceHandle, unsigned, int*) = nullptr;
  Result (*pairStatus)(DeviceHandle, DeviceHandle, int, int*) = nullptr;
  Result (*fieldValues)(DeviceHandle, int, FieldValue*) = nullptr;     // NULL with old drivers
  Result (*linkVersion)(DeviceHandle, unsigned, unsigned*) = nullptr;  // the same

  bool load() {
    library.find("nvmlDeviceGetFieldValues", fieldValues);
    library.find("nvmlDeviceGetNvLinkVersion", linkVersion);
    return library.find("nvmlInit_v2", initialize) && library.find("nvmlShutdown", shutdown) &&
           library.find("nvmlDeviceGetHandleByPciBusId_v2", deviceByBusId) &&
           library.find("nvmlDeviceGetNvLinkState", linkState) && library.find("nvmlDeviceGetP2PStatus", pairStatus);
  }

  DeviceHandle device(const std::string& busId) const {
    DeviceHandle handle = nullptr;
    return deviceByBusId(busId.c_str(), &handle) == kNvmlSuccess ? handle : nullptr;
  }

  bool isActive(DeviceHandle device, unsigned link) const {
    int state = 0;
    return linkState(device, link, &state) == kNvmlSuccess && state == 1;
  }

  double megabytes(DeviceHandle device, unsigned link) const {
    FieldValue speed{};
    speed.field = kNvlinkSpeed;
    speed.scope = link;
    if (fieldValues != nullptr && fieldValues(device, 1, &speed) == kNvmlSuccess && speed.result == kNvmlSuccess &&
        speed.type == kUnsignedValue && speed.value.number > 0) {
      return speed.value.number;
    }
    unsigned version = 0;
    if (linkVersion == nullptr || linkVersion(device, link, &version) != kNvmlSuccess) return 0;
    return megabytesOfVersion(version);
  }
};

std::unique_ptr<Nvml> Nvml::open() {
  auto functions = std::make_unique<Functions>();
  if (!functions->load() || functions->initialize() != kNvmlSuccess) return nullptr;
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
  for (unsigned link = 0; link < kNvlinksMax; ++link) active += functions_->isActive(device, link) ? 1 : 0;
  return active;
}

double Nvml::nvlinkMegabytes(const std::string& busId) const {
  const DeviceHandle device = functions_->device(busId);
  if (device == nullptr) return 0;
  double sum = 0;
  for (unsigned link = 0; link < kNvlinksMax; ++link) {
    if (!functions_->isActive(device, link)) continue;
    const double megabytes = functions_->megabytes(device, link);
    if (megabytes <= 0) return 0;
    sum += megabytes;
  }
  return sum;
}

bool Nvml::connectedByNvlink(const std::string& busId, const std::string& otherBusId) const {
  const DeviceHandle device = functions_->device(busId);
  const DeviceHandle other = functions_->device(otherBusId);
  int status = kStatusOk + 1;
  return device != nullptr && other != nullptr &&
         functions_->pairStatus(device, other, kCapabilityNvlink, &status) == kNvmlSuccess && status == kStatusOk;
}

}  // namespace moe::topology
