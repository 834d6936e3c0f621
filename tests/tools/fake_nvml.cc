// Replaces libnvidia-ml.so.1, as far as nvml.cc uses it. It has the GPUs "0000:01:00.0" and "0000:03:00.0", with what
// the test sets. In a program that does not link it, but finds it by LD_LIBRARY_PATH, it has every GPU:
// FAKE_NVML_APART=1 says that GPUs have no access to each other, and FAKE_NVML_CLUSTER=N that they are in clique 0 of a
// fabric.
#include "tools/fake_nvml.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6;
moe::test::FakeNvlinks links;

int numberOf(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : 0;
}
const bool hasEveryGpu = std::getenv("FAKE_NVML_APART") != nullptr || std::getenv("FAKE_NVML_CLUSTER") != nullptr;
moe::test::FakeAccess access{numberOf("FAKE_NVML_APART"), 0};
moe::test::FakeFabric fabric{static_cast<std::uint8_t>(numberOf("FAKE_NVML_CLUSTER")), 0, 3, 0, true};

// nvmlGpuFabricInfo_v2_t
struct FabricInfo {
  unsigned version;
  unsigned char clusterUuid[16];
  int status;
  unsigned cliqueId;
  unsigned char state;
  unsigned healthMask;
};

// As nvml.h declares it.
struct FieldValue {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType, nvmlReturn;
  union {
    double real;
    unsigned number;
    unsigned long long large;
  } value;
};

bool active(unsigned link) {
  return link < static_cast<unsigned>(links.count) && static_cast<int>(link) != links.inactive;
}

}  // namespace

namespace moe::test {

void setNvlinks(const FakeNvlinks& to) {
  links = to;
}

void setAccess(const FakeAccess& to) {
  access = to;
}

void setFabric(const FakeFabric& to) {
  fabric = to;
}

}  // namespace moe::test

#define FAKE extern "C" [[gnu::visibility("default")]] int
FAKE nvmlInit_v2() {
  return kSuccess;
}
FAKE nvmlShutdown() {
  return kSuccess;
}
FAKE nvmlDeviceGetHandleByPciBusId_v2(const char* busId, void** device) {
  *device = &links;
  const bool known = std::strcmp(busId, "0000:01:00.0") == 0 || std::strcmp(busId, "0000:03:00.0") == 0;
  return known || hasEveryGpu ? kSuccess : kNotFound;
}
FAKE nvmlDeviceGetNvLinkState(void*, unsigned link, int* state) {
  *state = active(link) ? 1 : 0;
  return link < static_cast<unsigned>(links.count) ? kSuccess : kNotSupported;
}
FAKE nvmlDeviceGetP2PStatus(void*, void*, int capability, int* status) {
  const int all[] = {access.read, access.write};
  *status = capability < 2 ? all[capability] : 0;
  return kSuccess;
}
FAKE nvmlDeviceGetGpuFabricInfoV(void*, FabricInfo* info) {
  if (!fabric.told || info->version != (sizeof *info | 2U << 24U)) return kNotSupported;
  std::fill(std::begin(info->clusterUuid), std::end(info->clusterUuid), fabric.cluster);
  info->status = fabric.status;
  info->cliqueId = fabric.clique;
  info->state = static_cast<unsigned char>(fabric.state);
  info->healthMask = 0;
  return kSuccess;
}
FAKE nvmlDeviceGetFieldValues(void*, int count, FieldValue* values) {
  for (int i = 0; i < count; ++i) {
    const bool told = links.megabytes > 0 && values[i].fieldId == 164 && active(values[i].scopeId);
    values[i].nvmlReturn = told ? kSuccess : kNotSupported;
    values[i].valueType = 1;
    values[i].value.number = static_cast<unsigned>(links.megabytes);
  }
  return kSuccess;
}
FAKE nvmlDeviceGetNvLinkVersion(void*, unsigned link, unsigned* version) {
  *version = static_cast<unsigned>(links.version);
  return links.version > 0 && active(link) ? kSuccess : kNotSupported;
}
