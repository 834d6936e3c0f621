#include "topology/nvml.h"

#include <fmt/format.h>

#include <algorithm>
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
constexpr int kCapabilityRead = 0;      // NVML_P2P_CAPS_INDEX_READ
constexpr int kCapabilityWrite = 1;     // NVML_P2P_CAPS_INDEX_WRITE
constexpr int kCapabilityNvlink = 2;    // NVML_P2P_CAPS_INDEX_NVLINK
constexpr int kStatusOk = 0;            // NVML_P2P_STATUS_OK
constexpr int kStatusUnknown = 6;       // NVML_P2P_STATUS_UNKNOWN
constexpr int kFabricCompleted = 3;     // NVML_GPU_FABRIC_STATE_COMPLETED
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
  struct FabricInfo {  // nvmlGpuFabricInfo_v2_t
    unsigned version;
    std::uint8_t cluster[16];
    Result status;
    unsigned clique;
    std::uint8_t state;
    unsigned health;
  };
  static_assert(sizeof(FabricInfo) == 36);

  DynamicLibrary library{"libnvidia-ml.so.1"};
  Result (*initialize)() = nullptr;
  Result (*shutdown)() = nullptr;
  Result (*deviceByBusId)(const char*, DeviceHandle*) = nullptr;
  Result (*linkState)(DeviceHandle, unsigned, int*) = nullptr;
  Result (*pairStatus)(DeviceHandle, DeviceHandle, int, int*) = nullptr;
  Result (*fieldValues)(DeviceHandle, int, FieldValue*) = nullptr;     // NULL with old drivers
  Result (*linkVersion)(DeviceHandle, unsigned, unsigned*) = nullptr;  // the same
  Result (*fabricInfo)(DeviceHandle, FabricInfo*) = nullptr;           // the same

  bool load() {
    library.find("nvmlDeviceGetFieldValues", fieldValues);
    library.find("nvmlDeviceGetNvLinkVersion", linkVersion);
    library.find("nvmlDeviceGetGpuFabricInfoV", fabricInfo);
    return library.find("nvmlInit_v2", initialize) && library.find("nvmlShutdown", shutdown) &&
           library.find("nvmlDeviceGetHandleByPciBusId_v2", deviceByBusId) &&
           library.find("nvmlDeviceGetNvLinkState", linkState) && library.find("nvmlDeviceGetP2PStatus", pairStatus);
  }

  DeviceHandle device(const std::string& busId) const {
    DeviceHandle handle = nullptr;
    return deviceByBusId(busId.c_str(), &handle) == kNvmlSuccess ? handle : nullptr;
  }

  // kStatusUnknown if a GPU is not known.
  int statusOf(const std::string& busId, const std::string& otherBusId, int capability) const {
    const DeviceHandle one = device(busId);
    const DeviceHandle other = device(otherBusId);
    int status = kStatusUnknown;
    const bool told = one != nullptr && other != nullptr && pairStatus(one, other, capability, &status) == kNvmlSuccess;
    return told ? status : kStatusUnknown;
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
  return functions_->statusOf(busId, otherBusId, kCapabilityNvlink) == kStatusOk;
}

bool Nvml::cannotAccess(const std::string& busId, const std::string& otherBusId) const {
  const auto lacks = [&](int capability) {
    const int status = functions_->statusOf(busId, otherBusId, capability);
    return status != kStatusOk && status != kStatusUnknown;
  };
  return lacks(kCapabilityRead) || lacks(kCapabilityWrite);
}

std::optional<FabricClique> Nvml::fabricClique(const std::string& busId) const {
  const DeviceHandle device = functions_->device(busId);
  if (device == nullptr || functions_->fabricInfo == nullptr) return std::nullopt;
  Functions::FabricInfo info{};
  info.version = sizeof info | 2U << 24U;
  if (functions_->fabricInfo(device, &info) != kNvmlSuccess) return std::nullopt;
  const bool registered = info.state == kFabricCompleted && info.status == kNvmlSuccess;
  const bool joinsHosts = std::any_of(std::begin(info.cluster), std::end(info.cluster), [](int b) { return b != 0; });
  if (!registered || !joinsHosts) return std::nullopt;
  FabricClique clique;
  std::copy(std::begin(info.cluster), std::end(info.cluster), clique.cluster.begin());
  clique.number = info.clique;
  return clique;
}

std::string describe(const FabricClique& clique) {
  return fmt::format("{:02x}.{}", fmt::join(clique.cluster, ""), clique.number);
}

}  // namespace moe::topology
