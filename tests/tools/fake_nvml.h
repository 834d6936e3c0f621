// The NVLinks of the library that replaces libnvidia-ml.so.1.
#pragma once

namespace moe::test {

struct FakeNvlinks {
  int count = 0;
  int inactive = -1;  // which of them is
  int megabytes = 0;  // of each; 0: the driver does not tell
  int version = 0;    // of each; the same
};
[[gnu::visibility("default")]] void setNvlinks(const FakeNvlinks& to);

}  // namespace moe::test
