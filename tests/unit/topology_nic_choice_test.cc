// Which GPU takes which adapter, on machines that hwloc reads from unit/machines/*.xml (which have no comments, because
// hwloc's own parser accepts none):
//   cloud_vm      a virtual machine whose devices all hang at one host bridge, whatever the host looks like
//   dgx_h100      like a DGX H100: each GPU shares a switch with one adapter; mlx5_2 and mlx5_7 (storage) have switches
//                 of their own
//   few_nics      three GPUs at each socket; two adapters, both at the first, at root ports of another host bridge than
//                 the GPUs
//   no_nic        two GPUs at one switch, no adapter; a VGA controller of the mainboard, which must not count as a GPU
//   two_sockets   two sockets, two switches each, with two GPUs and one adapter at each switch
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "topology/rdma.h"

namespace moe::test {
namespace {

using namespace moe::topology;

struct TestMachine {
  std::vector<PciPlace> gpus;
  std::vector<NicPort> ports;  // all are InfiniBand, 400 Gb/s, without a fault

  NicPort& port(const std::string& nic) {
    for (NicPort& port : ports) {
      if (port.name.nic == nic) return port;
    }
    throw std::out_of_range(nic);
  }

  NicChoice choose(const RdmaSettings& settings = {}) const { return chooseNics(gpus, ports, settings); }
};

TestMachine load(const std::string& name) {
  const PciTree tree = readPciTree(loadHwloc(std::string(MOECOMM_SOURCE_DIR "/tests/unit/machines/") + name + ".xml"));
  TestMachine machine;
  for (const auto& gpu : tree.gpus) machine.gpus.push_back(gpu.place);
  for (const auto& [nic, place] : tree.nics) {
    NicPort port;
    port.name.nic = nic;
    port.layer = LinkLayer::infiniBand;
    port.gbps = 400;
    port.place = place;
    machine.ports.push_back(std::move(port));
  }
  return machine;
}

RdmaSettings named(const std::string& nics) {
  RdmaSettings settings;
  settings.nics = nics;
  return settings;
}

// The adapters of each GPU, such as "mlx5_0 mlx5_1+mlx5_2".
std::string takers(const NicChoice& choice) {
  std::string text;
  for (const auto& nics : choice.ofGpus) {
    std::string one;
    for (const auto& nic : nics) {
      one += (one.empty() ? "" : "+") + textOf(choice.rails[static_cast<std::size_t>(nic.rail)].name);
    }
    text += (text.empty() ? "" : " ") + (one.empty() ? "-" : one);
  }
  return text;
}

std::string railNames(const NicChoice& choice) {
  std::string text;
  for (const NicPort& rail : choice.rails) text += (text.empty() ? "" : " ") + textOf(rail.name);
  return text;
}

std::string refusal(const TestMachine& machine, const std::string& nics) {
  try {
    return "not refused: " + takers(machine.choose(named(nics)));
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeInvalidArgument);
    return error.what();
  }
}

TEST(NicChoice, TakesTheAdapterOnTheSameSwitchAndLeavesStorageAlone) {
  const NicChoice choice = load("dgx_h100").choose();
  EXPECT_EQ(takers(choice), "mlx5_0 mlx5_1 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_8 mlx5_9");
  EXPECT_EQ(railNames(choice), "mlx5_0 mlx5_1 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_8 mlx5_9");
  EXPECT_EQ(choice.ofGpus[7][0].rail, 7);
  EXPECT_EQ(choice.ofGpus[7][0].distance, Distance::pcieSwitch);
  ASSERT_EQ(choice.leftOut.size(), 2U);
  EXPECT_EQ(choice.leftOut[0].name.nic, "mlx5_2");
  EXPECT_EQ(choice.leftOut[0].reason, "it is nearest to no GPU");
  EXPECT_EQ(choice.reason, "");
}

TEST(NicChoice, SharesTheAdapterOfASwitch) {
  const NicChoice choice = load("two_sockets").choose();
  EXPECT_EQ(takers(choice), "mlx5_0 mlx5_0 mlx5_1 mlx5_1 mlx5_2 mlx5_2 mlx5_3 mlx5_3");
}

TEST(NicChoice, SpreadsGpusEvenlyOverFewAdapters) {
  const NicChoice choice = load("few_nics").choose();
  EXPECT_EQ(takers(choice), "mlx5_0 mlx5_1 mlx5_0 mlx5_1 mlx5_0 mlx5_1");
  EXPECT_EQ(choice.ofGpus[0][0].distance, Distance::numaNode);
  EXPECT_EQ(choice.ofGpus[3][0].distance, Distance::machine);
}

TEST(NicChoice, GivesEachGpuItsOwnWhereNothingIsNearer) {
  const NicChoice choice = load("cloud_vm").choose();
  EXPECT_EQ(takers(choice), "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
  EXPECT_EQ(choice.ofGpus[2][0].distance, Distance::hostBridge);
}

TEST(NicChoice, SaysThatThereIsNoAdapter) {
  const TestMachine machine = load("no_nic");
  EXPECT_EQ(machine.gpus.size(), 2U);  // the mainboard's VGA controller does not count
  const NicChoice choice = machine.choose();
  EXPECT_EQ(choice.reason, "this machine has no RDMA adapter");
  EXPECT_EQ(takers(choice), "- -");
}

TEST(NicChoice, GoesToTheLeastUsedNeighbourWhenAPortIsDown) {
  TestMachine machine = load("dgx_h100");
  machine.port("mlx5_1").fault = "its state is DOWN";
  const NicChoice choice = machine.choose();
  // Every other adapter of the socket serves one GPU, so the first of them gets a second one. The rails keep their
  // numbers.
  EXPECT_EQ(takers(choice), "mlx5_0 mlx5_0 mlx5_3 mlx5_4 mlx5_5 mlx5_6 mlx5_8 mlx5_9");
  EXPECT_EQ(choice.ofGpus[1][0].distance, Distance::numaNode);
  EXPECT_EQ(choice.ofGpus[7][0].rail, 7);
}

TEST(NicChoice, ExplainsWhyNoPortCanBeUsed) {
  TestMachine machine = load("few_nics");
  for (NicPort& port : machine.ports) port.fault = "its state is DOWN";
  EXPECT_EQ(machine.choose().reason, "no RDMA port can be used: mlx5_0: its state is DOWN; mlx5_1: its state is DOWN");
}

TEST(NicChoice, KeepsToOneLinkLayer) {
  TestMachine machine = load("cloud_vm");
  machine.port("mlx5_1").layer = LinkLayer::ethernet;
  const NicChoice majority = machine.choose();
  EXPECT_EQ(takers(majority), "mlx5_0 mlx5_2 mlx5_3 mlx5_0");
  ASSERT_EQ(majority.leftOut.size(), 1U);
  EXPECT_EQ(majority.leftOut[0].reason, "its link layer is not InfiniBand");
  RdmaSettings ethernet;
  ethernet.linkLayer = static_cast<std::int32_t>(LinkLayer::ethernet);
  EXPECT_EQ(takers(machine.choose(ethernet)), "mlx5_1 mlx5_1 mlx5_1 mlx5_1");
}

TEST(NicChoice, PassesOverSlowPorts) {
  TestMachine machine = load("cloud_vm");
  machine.port("mlx5_0").gbps = 25;
  const NicChoice choice = machine.choose();
  EXPECT_EQ(takers(choice), "mlx5_1 mlx5_2 mlx5_3 mlx5_1");
  EXPECT_EQ(choice.rails[0].fault, "it has 25 Gb/s, others have 400");
}

TEST(NicChoice, CountsSecondPortsAndSortsByNumber) {
  TestMachine machine = load("cloud_vm");
  machine.port("mlx5_3").name.nic = "mlx5_10";
  NicPort second = machine.port("mlx5_2");
  second.name.port = 2;
  machine.ports.insert(machine.ports.begin(), second);
  EXPECT_EQ(railNames(machine.choose()), "mlx5_0 mlx5_1 mlx5_2 mlx5_2:2 mlx5_10");
}

TEST(NicChoice, TakesTwoOfTheSwitchIfEveryGpuHasThem) {
  TestMachine machine = load("dgx_h100");
  for (const char* nic : {"mlx5_0", "mlx5_1", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_8", "mlx5_9"}) {
    NicPort second = machine.port(nic);
    second.name.port = 2;
    machine.ports.push_back(second);
  }
  const NicChoice choice = machine.choose();
  EXPECT_EQ(takers(choice).substr(0, 33), "mlx5_0+mlx5_0:2 mlx5_1+mlx5_1:2 m");
  machine.ports.pop_back();  // now the last GPU has only one
  EXPECT_EQ(takers(machine.choose()).substr(0, 13), "mlx5_0 mlx5_1");
}

TEST(NicChoice, GivesAsManyAsAreAskedFor) {
  RdmaSettings two;
  two.nicsPerGpu = 2;
  EXPECT_EQ(takers(load("few_nics").choose(two)),
            "mlx5_0+mlx5_1 mlx5_0+mlx5_1 mlx5_0+mlx5_1 mlx5_0+mlx5_1 mlx5_0+mlx5_1 mlx5_0+mlx5_1");
  // The second adapter is the other one of the same socket, which is nearer than those of the other socket.
  EXPECT_EQ(takers(load("two_sockets").choose(two)).substr(0, 27), "mlx5_0+mlx5_1 mlx5_0+mlx5_1");
}

TEST(NicChoice, WorksWithoutGpus) {
  TestMachine machine = load("dgx_h100");
  machine.gpus.clear();
  EXPECT_EQ(machine.choose().rails.size(), 10U);
}

TEST(NicChoice, TakesTheNamedAdaptersInTheirOrder) {
  const NicChoice choice = load("dgx_h100").choose(named("mlx5_7,mlx5_2"));
  EXPECT_EQ(railNames(choice), "mlx5_7 mlx5_2");
  EXPECT_EQ(takers(choice), "mlx5_2 mlx5_2 mlx5_2 mlx5_2 mlx5_7 mlx5_7 mlx5_7 mlx5_7");
  EXPECT_EQ(choice.leftOut.size(), 8U);
  EXPECT_EQ(choice.leftOut[0].reason, "it is not in MOECOMM_NICS");
}

TEST(NicChoice, TakesTheAdaptersNamedForEachGpu) {
  const NicChoice choice = load("cloud_vm").choose(named("0=mlx5_3;1=mlx5_2,mlx5_1;2=mlx5_3;3=mlx5_1"));
  EXPECT_EQ(railNames(choice), "mlx5_3 mlx5_2 mlx5_1");
  EXPECT_EQ(takers(choice), "mlx5_3 mlx5_2+mlx5_1 mlx5_3 mlx5_1");
}

TEST(NicChoice, RefusesWhatIsNotThere) {
  TestMachine machine = load("cloud_vm");
  EXPECT_EQ(refusal(machine, "mlx5_0,mlx5_9"),
            "MOECOMM_NICS names mlx5_9, which this machine does not have; it has mlx5_0, mlx5_1, mlx5_2, mlx5_3");
  EXPECT_EQ(refusal(machine, "mlx5_0:2"),
            "MOECOMM_NICS names mlx5_0:2, which this machine does not have; it has mlx5_0, mlx5_1, mlx5_2, mlx5_3");
  EXPECT_EQ(refusal(machine, "0=mlx5_0;1=mlx5_1;2=mlx5_2"), "MOECOMM_NICS names no adapter for GPU 3");
  EXPECT_EQ(refusal(machine, "7=mlx5_0"), "MOECOMM_NICS names adapters for GPU 7; the machine has 4 GPUs");
  machine.port("mlx5_1").fault = "its state is DOWN";
  EXPECT_EQ(refusal(machine, "mlx5_0,mlx5_1"), "MOECOMM_NICS names mlx5_1, but its state is DOWN");
  machine.port("mlx5_2").layer = LinkLayer::ethernet;
  EXPECT_EQ(refusal(machine, "mlx5_0,mlx5_2"), "MOECOMM_NICS names adapters of both link layers");
}

TEST(NicChoice, RefusesMalformedLists) {
  const TestMachine machine = load("cloud_vm");
  for (const char* text : {",", "mlx5_0,", "mlx5_0:x", "mlx5_0, mlx5_1", "mlx5_0,mlx5_0", "0=mlx5_0;0=mlx5_1",
                           "x=mlx5_0", "0=mlx5_0;", "0=", "mlx5_0;mlx5_1"}) {
    const std::string expected = "MOECOMM_NICS is \"" + std::string(text) + "\"; expected adapters like";
    EXPECT_EQ(refusal(machine, text).substr(0, expected.size()), expected);
  }
}

TEST(PciTree, NeedsAFileThatHwlocReads) {
  EXPECT_THROW(loadHwloc("/nonexistent.xml"), Error);
  EXPECT_THROW(loadHwloc(MOECOMM_SOURCE_DIR "/README.md"), Error);
}

TEST(PciTree, SaysWhyItIsEmptyWithoutHwloc) {
  const HwlocTopology missing = loadHwloc({}, "libno_such_hwloc.so.15");
  EXPECT_EQ(missing.reason(), "libno_such_hwloc.so.15 cannot be loaded; install hwloc (Debian, Ubuntu: libhwloc15)");
  EXPECT_EQ(loadHwloc({}, "libm.so.6").reason(), "libm.so.6 is not that of hwloc 2");
  const PciTree tree = readPciTree(missing);
  EXPECT_EQ(tree.reason, missing.reason());
  EXPECT_TRUE(tree.gpus.empty());
  EXPECT_TRUE(tree.nics.empty());
  EXPECT_EQ(readPciTree(loadHwloc()).reason, "");
}

TEST(PciTree, MeasuresDistances) {
  const PciPlace gpu{{"0000:15", "0000:15:01.0", "0000:16:00.0"}, 0, 0};
  const PciPlace sibling{{"0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0"}, 0, 0};
  const PciPlace cousin{{"0000:15", "0000:15:01.0", "0000:18:00.0"}, 0, 0};
  const PciPlace bridge{{"0000:15", "0000:15:02.0"}, 0, 0};
  const PciPlace node{{"0000:30"}, 0, 0}, package{{"0000:40"}, 1, 0}, far{{"0000:80"}, 2, 1}, nowhere{};
  const std::vector<PciPlace> places = {sibling, cousin, bridge, node, package, far};
  for (std::size_t i = 0; i + 1 < places.size(); ++i) {
    EXPECT_LT(wayBetween(gpu, places[i]), wayBetween(gpu, places[i + 1])) << i;
  }
  EXPECT_EQ(distanceBetween(gpu, cousin), Distance::pcieSwitch);
  EXPECT_EQ(distanceBetween(gpu, package), Distance::package);
  EXPECT_EQ(distanceBetween(gpu, nowhere), Distance::machine);
  EXPECT_EQ(distanceBetween(nowhere, nowhere), Distance::machine);
}

}  // namespace
}  // namespace moe::test
