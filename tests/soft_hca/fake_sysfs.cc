#include "soft_hca/fake_sysfs.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace moe::test {
namespace {

struct Entry {
  const char* path;
  const char* text;
};
constexpr const char* kModalias = "pci:v000015B3d00001021sv000015B3sd00000041bc02sc07i00";
constexpr Entry kTree[] = {
    {"class/infiniband_verbs/abi_version", "6"},
    {"class/infiniband_verbs/uverbs0/ibdev", "mlx5_0"},
    {"class/infiniband_verbs/uverbs0/dev", "231:192"},
    {"class/infiniband_verbs/uverbs0/abi_version", "1"},
    {"class/infiniband_verbs/uverbs0/device/modalias", kModalias},
    {"class/infiniband/mlx5_0/node_type", "1: CA"},
    {"class/infiniband/mlx5_0/fw_ver", "28.39.1002"},
    {"class/infiniband/mlx5_0/device/vendor", "0x15b3"},
    {"class/infiniband/mlx5_0/device/device", "0x1021"},
    {"class/infiniband/mlx5_0/device/modalias", kModalias},
    {"class/infiniband/mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001"},
    {"class/infiniband/mlx5_0/ports/1/gid_attrs/types/0", "IB/RoCE v1"},
    {"class/infiniband/mlx5_0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001"},
    {"class/infiniband/mlx5_0/ports/1/gid_attrs/types/1", "RoCE v2"},
};

}  // namespace

FakeSysfs::FakeSysfs() : owner_(getpid()) {
  std::string name = (std::filesystem::temp_directory_path() / "fakemlx5.XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) return;  // then there is no device
  root_ = name;
  for (const Entry& entry : kTree) {
    const std::filesystem::path path = std::filesystem::path(root_) / entry.path;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << entry.text << '\n';
  }
  setenv("SYSFS_PATH", root_.c_str(), 1);
}

FakeSysfs::~FakeSysfs() {
  std::error_code ignored;
  if (getpid() == owner_ && !root_.empty()) std::filesystem::remove_all(root_, ignored);
}

}  // namespace moe::test
