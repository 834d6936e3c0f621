// Replaces libnvidia-ml.so.1 where there is no GPU, as far as nvml.cc uses it. It has one GPU, "0000:01:00.0", with the
// links that the test sets.
#include "tools/fake_nvml.h"

#include <cstring>

namespace {

constexpr int kSuccess = 0, kNotSupported = 3, kNotFound = 6;
moe::test::FakeNvlinks links;

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
  return std::strcmp(busId, "0000:01:00.0") == 0 ? kSuccess : kNotFound;
}
FAKE nvmlDeviceGetNvLinkState(void*, unsigned link, int* state) {
  *state = active(link) ? 1 : 0;
  return link < static_cast<unsigned>(links.count) ? kSuccess : kNotSupported;
}
FAKE nvmlDeviceGetP2PStatus(void*, void*, int, int* status) {
  *status = 0;
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
