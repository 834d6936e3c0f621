// A folder that looks to libibverbs and the library like /sys of a machine with ConnectX-7 adapters, each with one RoCE
// port and its addresses. The environment controls it:
//
//   FAKE_MLX5_DEVICES  number of devices, 1 if not set; their names are mlx5_0, mlx5_1, ...
//   FAKE_MLX5_HOST     0 to 254, the third byte of their IPv4 addresses 10.0.<host>.<device + 1>; 0 if not set
#pragma once

#include <filesystem>
#include <string>

#include "fake_mlx5/packet.h"

namespace moe::test {

class FakeSysfs {
 public:
  FakeSysfs();   // also points SYSFS_PATH to the folder
  ~FakeSysfs();  // removes the folder, but only in the process that made it
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

 private:
  void put(const std::string& path, const std::string& text) const;
  void addDevice(unsigned device) const;

  std::filesystem::path root_;
  int owner_;
};

unsigned fakeDeviceCount();
// Index 0 is the link-local address, for RoCE v1. Index 1 is derived from the IPv4 address, for RoCE v2.
Gid fakeGid(unsigned device, unsigned index);

// The minor numbers of their character devices start at kDeviceMinor. 231 is the major number of the kernel's uverbs
// devices.
inline constexpr unsigned kDeviceMajor = 231, kDeviceMinor = 192, kDevicesMax = 16;
// The device of a path such as /dev/infiniband/uverbs0; negative if the path is none of ours.
int fakeDeviceOf(const char* path);

}  // namespace moe::test
