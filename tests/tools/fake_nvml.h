// What the replacement of libnvidia-ml.so.1 reports of its GPUs.
#pragma once

#include <cstdint>

namespace moe::test {

struct FakeNvlinks {
  int count = 0;
  int inactive = -1;  // the index of an inactive link
  int megabytes = 0;  // of each link; 0: the driver does not tell
  int version = 0;    // of each link; 0: the driver does not tell
};
[[gnu::visibility("default")]] void setNvlinks(const FakeNvlinks& to);

// Access between two GPUs, as values of nvmlGpuP2PStatus_t.
struct FakeAccess {
  int read = 0, write = 0;
};
[[gnu::visibility("default")]] void setAccess(const FakeAccess& to);

struct FakeFabric {
  std::uint8_t cluster = 0;  // each byte of its UUID
  unsigned clique = 0;
  int state = 3;   // 3: the registration is completed
  int status = 0;  // of the registration; 0: it has succeeded
  bool told = true;
};
[[gnu::visibility("default")]] void setFabric(const FakeFabric& to);

}  // namespace moe::test
