// What is read from sysfs, with a made-up /sys, and what is concluded from it. The GPUs of the machine itself are not
// asked for, so this runs anywhere.
#include "topology/topology.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tools/moe_info_report.h"
#include "topology/sysfs.h"

namespace moe::test {
namespace {

using namespace moe::topology;
namespace fs = std::filesystem;

// A machine with two adapters, each under the same switch as one GPU, and one plain Ethernet card.
class FakeSys : public ::testing::Test {
 protected:
  FakeSys() {
    std::string name = (fs::temp_directory_path() / "moecomm_sys_XXXXXX").string();
    root_ = ::mkdtemp(name.data());
    addRdma("mlx5_0", "0000:00:01.0/0000:17:00.0", "ib0", "4: ACTIVE", 0);
    addRdma("mlx5_1", "0000:00:02.0/0000:a3:00.0", "ib1", "4: ACTIVE", 1);
    addInterface("eth0", "0000:00:03.0", "up");
    fs::create_directories(root_ / "class/net/lo");  // no device: virtual
  }
  ~FakeSys() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  void addInterface(const std::string& name, const std::string& place, const std::string& state) {
    const fs::path device = root_ / "devices/pci0000:00" / place;
    fs::create_directories(device / "net" / name);
    write(root_ / "class/net" / name / "operstate", state);
    write(root_ / "class/net" / name / "speed", "25000");
    fs::create_directory_symlink(device, root_ / "class/net" / name / "device");
  }

  void addRdma(const std::string& name, const std::string& place, const std::string& interface,
               const std::string& state, int numaNode) {
    addInterface(interface, place, "up");
    const fs::path device = root_ / "devices/pci0000:00" / place;
    write(device / "numa_node", std::to_string(numaNode));
    const fs::path port = root_ / "class/infiniband" / name / "ports/1";
    write(port / "state", state);
    write(port / "rate", "400 Gb/sec (4X NDR)");
    write(port / "link_layer", "InfiniBand");
    fs::create_directory_symlink(device, root_ / "class/infiniband" / name / "device");
  }

  fs::path root_;
};

TEST_F(FakeSys, ListsRdmaAdaptersFirstAndEachCardOnce) {
  const auto nics = findNics(root_);
  ASSERT_EQ(nics.size(), 3U);
  EXPECT_EQ(nics[0].name, "mlx5_0");
  EXPECT_EQ(nics[0].interfaces, std::vector<std::string>{"ib0"});
  EXPECT_EQ(nics[0].busId, "0000:17:00.0");
  EXPECT_EQ(nics[1].numaNode, 1);
  EXPECT_EQ(nics[2].name, "eth0");
  EXPECT_FALSE(nics[2].rdma);
}

TEST_F(FakeSys, ReadsPorts) {
  const auto nics = findNics(root_);
  ASSERT_EQ(nics.at(0).ports.size(), 1U);
  const RdmaPort& port = nics[0].ports[0];
  EXPECT_EQ(port.number, 1);
  EXPECT_EQ(port.state, "ACTIVE");
  EXPECT_EQ(port.rate, "400 Gb/sec (4X NDR)");
  EXPECT_EQ(port.linkLayer, "InfiniBand");
  EXPECT_TRUE(nics[0].up);
}

TEST_F(FakeSys, FindsTheAdapterUnderTheSameSwitch) {
  Topology topology;
  topology.nics = findNics(root_);
  Gpu gpu;
  gpu.device = resolve(root_ / "devices/pci0000:00/0000:00:02.0") / "0000:a4:00.0";
  EXPECT_EQ(nearestNic(topology, gpu), 1);
  topology.nics[1].up = false;
  EXPECT_EQ(nearestNic(topology, gpu), 0);
  topology.nics.clear();
  EXPECT_EQ(nearestNic(topology, gpu), -1);
}

TEST(Topology, HasNoAdaptersWithoutSys) {
  EXPECT_TRUE(findNics("/nonexistent").empty());
}

TEST(Topology, NeedsPeerAccessInBothDirections) {
  GpuInventory gpus;
  gpus.gpus.resize(2);
  gpus.links = {{{true, true, false}, {true, false, false}}, {{false, false, false}, {true, true, false}}};
  EXPECT_EQ(transportBetween(gpus, 0, 1), "none: no peer access");
  gpus.links[1][0].peerAccess = true;
  EXPECT_EQ(transportBetween(gpus, 0, 1), "cuda-ipc");
  EXPECT_EQ(transportBetween(gpus, 0, 0), "cuda-ipc");
}

TEST(Topology, SeesTheCoresOfThisMachine) {
  const Machine machine = describeMachine();
  EXPECT_GE(machine.threads, 1);
  ASSERT_GE(machine.nodes.size(), 1U);
  EXPECT_GE(machine.nodes[0].memoryBytes, 1U << 20);
}

TEST(Topology, SaysWhyThereAreNoGpus) {
  const GpuInventory gpus = findGpus("/sys");
  EXPECT_EQ(gpus.gpus.empty(), !gpus.reason.empty());
  EXPECT_EQ(gpus.links.size(), gpus.gpus.size());
}

tools::Report twoGpuReport() {
  tools::Report report;
  report.version = 102;
  report.backends = {{"host", true, ""}, {"cuda", false, "the reason"}};
  for (int i = 0; i < 2; ++i) {
    Gpu gpu;
    gpu.ordinal = i;
    gpu.name = "Some GPU";
    report.topology.gpus.gpus.push_back(gpu);
  }
  report.topology.gpus.links = {{{true, true, false}, {true, true, true}}, {{true, true, true}, {true, true, false}}};
  return report;
}

TEST(MoeInfo, TellsBackendsAndLinks) {
  const std::string text = toText(twoGpuReport());
  for (const char* line : {"moecomm 0.1.2\n", "  host: available\n", "  cuda: the reason\n",
                           "  0 - 1: NVLink with atomics, cuda-ipc\n", "RDMA adapters: none\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in:\n" << text;
  }
}

}  // namespace
}  // namespace moe::test
