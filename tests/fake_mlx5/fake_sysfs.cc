#include "fake_mlx5/fake_sysfs.h"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace moe::test {
namespace {

constexpr const char* kModalias = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc07i00";
constexpr const char* kDevicePath = "/dev/infiniband/uverbs";

unsigned environmentNumber(const char* name, unsigned otherwise, unsigned most) {
  const char* text = getenv(name);
  return text == nullptr ? otherwise : std::min(static_cast<unsigned>(std::strtoul(text, nullptr, 10)), most);
}

// Formats as sysfs does: eight groups of four digits.
std::string gidText(const Gid& gid) {
  std::string text;
  for (std::size_t i = 0; i < gid.size(); i += 2) {
    char group[6];
    std::snprintf(group, sizeof(group), "%02x%02x%s", gid[i], gid[i + 1], i + 2 < gid.size() ? ":" : "");
    text += group;
  }
  return text;
}

}  // namespace

unsigned fakeDeviceCount() {
  return environmentNumber("FAKE_MLX5_DEVICES", 1, kDevicesMax);
}

Gid fakeGid(unsigned device, unsigned index) {
  static const auto host = static_cast<std::uint8_t>(environmentNumber("FAKE_MLX5_HOST", 0, 254));
  const auto number = static_cast<std::uint8_t>(device + 1);
  if (index == 0) return {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, host, 0xff, 0xfe, 0, 0, number};
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, host, number};
}

int fakeDeviceOf(const char* path) {
  const std::size_t length = std::strlen(kDevicePath);
  if (std::strncmp(path, kDevicePath, length) != 0 || path[length] == 0) return -1;
  char* end = nullptr;
  const unsigned long device = std::strtoul(path + length, &end, 10);
  return *end == 0 && device < fakeDeviceCount() ? static_cast<int>(device) : -1;
}

FakeSysfs::FakeSysfs() : owner_(getpid()) {
  std::string name = (std::filesystem::temp_directory_path() / "fakemlx5.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return;  // without a folder there is no device
  root_ = name;
  put("class/infiniband_verbs/abi_version", "6");
  for (unsigned device = 0; device < fakeDeviceCount(); ++device) addDevice(device);
  setenv("SYSFS_PATH", root_.c_str(), 1);
}

FakeSysfs::~FakeSysfs() {
  std::error_code ignored;
  if (getpid() == owner_ && !root_.empty()) std::filesystem::remove_all(root_, ignored);
}

void FakeSysfs::put(const std::string& path, const std::string& text) const {
  const std::filesystem::path file = root_ / path;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text << '\n';
}

// A PCI device with its entries in three classes, for libibverbs and for src/topology.
void FakeSysfs::addDevice(unsigned device) const {
  const std::string number = std::to_string(device), verbs = "class/infiniband_verbs/uverbs" + number,
                    rdma = "class/infiniband/mlx5_" + number;
  char address[32];
  std::snprintf(address, sizeof(address), "0000:%02x:00.0", 0x40 + 0x10 * device);
  const std::string pci = std::string("devices/pci0000:00/") + address;
  put(pci + "/vendor", "0x15b3");
  put(pci + "/device", "0x1021");
  put(pci + "/modalias", kModalias);
  put(pci + "/numa_node", "-1");
  put(pci + "/local_cpulist", "0-" + std::to_string(sysconf(_SC_NPROCESSORS_CONF) - 1));
  std::filesystem::create_directories(root_ / "bus/pci/drivers/mlx5_core");
  std::filesystem::create_directory_symlink("../../../bus/pci/drivers/mlx5_core", root_ / pci / "driver");

  put(verbs + "/ibdev", "mlx5_" + number);
  put(verbs + "/dev", std::to_string(kDeviceMajor) + ":" + std::to_string(kDeviceMinor + device));
  put(verbs + "/abi_version", "1");
  put(rdma + "/node_type", "1: CA");
  put(rdma + "/fw_ver", "28.39.1002");
  put(rdma + "/node_guid", gidText(fakeGid(device, 0)).substr(20));
  for (const std::string& link : {verbs + "/device", rdma + "/device"}) {
    std::filesystem::create_directory_symlink("../../../" + pci, root_ / link);
  }

  const std::string interface = "hca" + number, net = "class/net/" + interface;
  put(net + "/operstate", "up");
  put(net + "/mtu", "9000");
  put(net + "/speed", "400000");
  std::filesystem::create_directory_symlink("../../../" + pci, root_ / net / "device");
  std::filesystem::create_directories(root_ / pci / "net" / interface);

  const std::string port = rdma + "/ports/1";
  put(port + "/state", "4: ACTIVE");
  put(port + "/phys_state", "5: LinkUp");
  put(port + "/link_layer", "Ethernet");
  put(port + "/rate", "400 Gb/sec (4X NDR)");
  put(port + "/gids/0", gidText(fakeGid(device, 0)));
  put(port + "/gids/1", gidText(fakeGid(device, 1)));
  put(port + "/gid_attrs/types/0", "IB/RoCE v1");
  put(port + "/gid_attrs/types/1", "RoCE v2");
  put(port + "/gid_attrs/ndevs/0", interface);
  put(port + "/gid_attrs/ndevs/1", interface);
}

}  // namespace moe::test
