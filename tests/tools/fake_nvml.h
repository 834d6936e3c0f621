// The NVLinks that the replacement of libnvidia-ml.so.1 reports.
#pragma once

namespace moe::test {

struct FakeNvlinks {
  int count = 0;
  int inactive = -1;  // the index of an inactive link
  int megabytes = 0;  // of each link; 0: the driver does not tell
  int version = 0;    // of each link; 0: the driver does not tell
};
[[gnu::visibility("default")]] void setNvlinks(const FakeNvlinks& to);

}  // namespace moe::test
