// The library's reading of a made-up /sys, and its conclusions. It does not query the GPUs of this machine, so the test
// runs anywhere.
#include "topology/topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "support/base/fake_root.h"
#include "tools/moe_info_report.h"

namespace moe::test {
namespace {

using namespace moe::topology;

// A machine with two adapters and one plain Ethernet card.
class FakeSys : public FakeRoot {
 protected:
  FakeSys() {
    addRdma("mlx5_0", "0000:00:01.0/0000:17:00.0", "ib0", "InfiniBand", 0);
    addRdma("mlx5_1", "0000:00:02.0/0000:a3:00.0", "ib1", "InfiniBand", 1);
    addInterface("eth0", "0000:00:03.0", "up");
    std::filesystem::create_directories(sys() / "class/net/lo");  // has no device, so it is virtual
  }
};

TEST_F(FakeSys, ListsRdmaAdaptersFirstAndEachCardOnce) {
  const auto nics = findNics(sys());
  ASSERT_EQ(nics.size(), 3U);
  EXPECT_EQ(nics[0].name, "mlx5_0");
  EXPECT_EQ(nics[0].interfaces, std::vector<std::string>{"ib0"});
  EXPECT_EQ(nics[0].busId, "0000:17:00.0");
  EXPECT_EQ(nics[1].numaNode, 1);
  EXPECT_EQ(nics[2].name, "eth0");
  EXPECT_FALSE(nics[2].rdma);
}

TEST_F(FakeSys, ReadsPorts) {
  const auto nics = findNics(sys());
  ASSERT_EQ(nics.at(0).ports.size(), 1U);
  const RdmaPort& port = nics[0].ports[0];
  EXPECT_EQ(port.number, 1);
  EXPECT_EQ(port.state, "ACTIVE");
  EXPECT_EQ(port.rate, "400 Gb/sec (4X NDR)");
  EXPECT_EQ(port.linkLayer, "InfiniBand");
  EXPECT_TRUE(nics[0].up);
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
  const Machine machine = describeMachine(loadHwloc());
  EXPECT_GE(machine.threads, 1);
  ASSERT_GE(machine.nodes.size(), 1U);
  EXPECT_GE(machine.nodes[0].memoryBytes, 1U << 20);
}

TEST(Topology, CountsThreadsOfThisMachineWithoutHwloc) {
  const Machine machine = describeMachine(loadHwloc({}, "libno_such_hwloc.so.15")),
                known = describeMachine(loadHwloc());
  EXPECT_EQ(machine.processor, known.processor);
  EXPECT_GE(machine.threads, 1);
  EXPECT_EQ(machine.cores, 0);
  EXPECT_NE(machine.reason, "");
  EXPECT_EQ(known.reason, "");
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

TEST(MoeInfo, TellsWhetherAFabricJoinsHosts) {
  tools::Report report = twoGpuReport();
  EXPECT_EQ(toText(report).find("fabric"), std::string::npos);
  report.topology.gpus.gpus[0].fabric = report.topology.gpus.gpus[1].fabric = "2a2a.7";
  EXPECT_NE(toText(report).find(", fabric 2a2a.7\n"), std::string::npos) << toText(report);
  EXPECT_NE(toText(report).find("NVLink fabric: no channel of the IMEX service"), std::string::npos);
  report.topology.gpus.imexChannel = true;
  EXPECT_NE(toText(report).find("NVLink fabric: ranks of a clique share memory"), std::string::npos);
}

NicPort portNamed(const std::string& nic, const std::string& fault) {
  NicPort port;
  port.name.nic = nic;
  port.layer = LinkLayer::infiniBand;
  port.gbps = 400;
  port.fault = fault;
  return port;
}

TEST(MoeInfo, TellsRailsAndWhatIsMissing) {
  tools::Report report = twoGpuReport();
  report.topology.gpus.gpus[0].busId = "0000:1b:00.0";
  report.topology.pci.gpus = {{"0000:1b:00.0", {}}};
  report.rdma.nics.rails = {portNamed("mlx5_0", ""), portNamed("mlx5_1", "its state is DOWN")};
  report.rdma.nics.ofGpus = {{{0, Distance::pcieSwitch}}};
  LeftOut storage;
  storage.name.nic = "mlx5_2";
  storage.reason = "it is nearest to no GPU";
  report.rdma.nics.leftOut = {storage};
  report.prerequisites = {{"device nodes", Presence::missing, "there are none", "load it"}};
  const std::string text = toText(report);
  for (const char* line : {", adapter mlx5_0\n", "  0000:1b:00.0: rail 0 (same switch)\n",
                           "  rail 1: mlx5_1: its state is DOWN\n", "  not used: mlx5_2: it is nearest to no GPU\n",
                           "  device nodes: missing: there are none\n    to do: load it\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "in:\n" << text;
  }
  const nlohmann::ordered_json json = toJson(report);
  EXPECT_EQ(json["gpus"][0]["nics"][0], "mlx5_0");
  EXPECT_EQ(json["rdma"]["gpus"][0]["rails"][0]["distance"], "same switch");
  EXPECT_EQ(json["rdma"]["rails"][1]["fault"], "its state is DOWN");
  EXPECT_EQ(json["rdma"]["left_out"][0]["nic"], "mlx5_2");
  EXPECT_EQ(json["rdma"]["prerequisites"][0]["presence"], "missing");
}

}  // namespace
}  // namespace moe::test
