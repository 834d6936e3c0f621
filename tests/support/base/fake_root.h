// A made-up root with /sys, /proc and /dev in a temporary folder, for tests of code that reads there.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace moe::test {

class FakeRoot : public ::testing::Test {
 protected:
  FakeRoot() {
    std::string name = (std::filesystem::temp_directory_path() / "moecomm_root_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
  }
  ~FakeRoot() override { std::filesystem::remove_all(root_); }

  std::filesystem::path sys() const { return root_ / "sys"; }
  std::filesystem::path proc() const { return root_ / "proc"; }
  std::filesystem::path dev() const { return root_ / "dev"; }

  void write(const std::filesystem::path& file, const std::string& text) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  void addInterface(const std::string& name, const std::string& place, const std::string& state) {
    const std::filesystem::path device = sys() / "devices/pci0000:00" / place;
    std::filesystem::create_directories(device / "net" / name);
    write(sys() / "class/net" / name / "operstate", state);
    write(sys() / "class/net" / name / "speed", "25000");
    write(sys() / "class/net" / name / "mtu", "9000");
    std::filesystem::create_directory_symlink(device, sys() / "class/net" / name / "device");
  }

  // Adds an RDMA device with one port. Returns the port's directory.
  std::filesystem::path addRdma(const std::string& name, const std::string& place, const std::string& interface,
                                const std::string& linkLayer, int numaNode = 0) {
    addInterface(interface, place, "up");
    const std::filesystem::path device = sys() / "devices/pci0000:00" / place;
    write(device / "numa_node", std::to_string(numaNode));
    const std::filesystem::path port = sys() / "class/infiniband" / name / "ports/1";
    write(port / "state", "4: ACTIVE");
    write(port / "rate", "400 Gb/sec (4X NDR)");
    write(port / "link_layer", linkLayer);
    std::filesystem::create_directory_symlink(device, sys() / "class/infiniband" / name / "device");
    return port;
  }

  void addGid(const std::filesystem::path& port, int index, const std::string& gid, const std::string& type,
              const std::string& interface) {
    write(port / "gids" / std::to_string(index), gid);
    write(port / "gid_attrs/types" / std::to_string(index), type);
    if (!interface.empty()) write(port / "gid_attrs/ndevs" / std::to_string(index), interface);
  }

  std::filesystem::path root_;
};

}  // namespace moe::test
