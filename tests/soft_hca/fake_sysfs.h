// A folder that says to libibverbs what /sys says where there is a ConnectX-7 with one RoCE port.
#pragma once

#include <string>

namespace moe::test {

class FakeSysfs {
 public:
  FakeSysfs();   // and points SYSFS_PATH to it
  ~FakeSysfs();  // removes it, in the process that made it
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

 private:
  std::string root_;
  int owner_;
};

// Its character device: 231 is the major number of the kernel's uverbs devices.
inline constexpr const char* kDevicePath = "/dev/infiniband/uverbs0";
inline constexpr unsigned kDeviceMajor = 231, kDeviceMinor = 192;

}  // namespace moe::test
