// How RDMA connections are planned: the single rules, and all of them together on a machine with made-up files.
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/base/fake_root.h"
#include "topology/rdma.h"

namespace moe::test {
namespace {

using namespace moe::topology;

TEST(RdmaPlan, FitsTheMtuIntoTheInterfaces) {
  EXPECT_EQ(rdmaMtuOf(1500), 1024);
  EXPECT_EQ(rdmaMtuOf(4096), 2048);
  EXPECT_EQ(rdmaMtuOf(4200), 4096);
  EXPECT_EQ(rdmaMtuOf(9000), 4096);
  EXPECT_EQ(rdmaMtuOf(100), 0);
}

TEST(RdmaPlan, TakesTheSmallestMtuOfThePath) {
  EXPECT_EQ(pathMtu(4096, 1024, 4096), 1024);
  EXPECT_EQ(pathMtu(4096, 4096, 2048), 2048);
  EXPECT_EQ(pathMtu(0, 0, 4096), 4096);
}

TEST(RdmaPlan, KeepsToTheQueuePairsOfTheAdapter) {
  EXPECT_EQ(queuePairsPerPeer(0, 0, 0), 4);
  EXPECT_EQ(queuePairsPerPeer(0, 131072, 512), 4);
  EXPECT_EQ(queuePairsPerPeer(0, 131072, 1023), 2);
  EXPECT_EQ(queuePairsPerPeer(0, 131072, 4096), 1);
  EXPECT_EQ(queuePairsPerPeer(0, 1000, 400), 2);
  EXPECT_EQ(queuePairsPerPeer(16, 131072, 2048), 16);
  EXPECT_THROW(queuePairsPerPeer(16, 1000, 400), Error);
  EXPECT_THROW(queuePairsPerPeer(0, 100, 400), Error);
}

TEST(RdmaPlan, NoticesALostPeerBeforeWaitsEnd) {
  EXPECT_EQ(chooseAckTimeout(30000, 7), 18);
  EXPECT_NEAR(secondsUntilLost(18, 7), 8.6, 0.05);
  EXPECT_EQ(chooseAckTimeout(5000, 7), 16);
  EXPECT_LT(secondsUntilLost(chooseAckTimeout(5000, 7), 7), 2.5);
  EXPECT_EQ(chooseAckTimeout(1, 7), 14);
}

// One RoCE adapter and one InfiniBand adapter. There are no GPUs and no PCI tree.
class RdmaMachine : public FakeRoot {
 protected:
  RdmaMachine() {
    const auto roce = addRdma("mlx5_0", "0000:00:01.0", "eth1", "Ethernet");
    addGid(roce, 0, "fe80:0000:0000:0000:0e42:a1ff:fe00:0001", "RoCE v2", "eth1");
    addGid(roce, 1, "0000:0000:0000:0000:0000:ffff:0a01:0001", "RoCE v2", "eth1");
    addGid(roce, 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
    const auto infiniband = addRdma("mlx5_1", "0000:00:02.0", "ib0", "InfiniBand");
    addGid(infiniband, 0, "fe80:0000:0000:0000:0008:f104:0399:0001", "IB/RoCE v1", "");
  }

  Rdma plan(const RdmaSettings& settings) {
    topology_.nics = findNics(sys());
    return planRdma(topology_, settings, 30000);
  }

  Topology topology_;
};

TEST_F(RdmaMachine, IsDescribedInOneLine) {
  RdmaSettings settings;
  const Rdma infiniband = plan(settings);
  ASSERT_EQ(infiniband.plans.size(), 1U);
  EXPECT_EQ(describe(infiniband.plans[0]),
            "rail 0: mlx5_1, InfiniBand 400 Gb/sec (4X NDR), GID 0 (fe80::8:f104:399:1), MTU 4096, service level 0, "
            "4 queue pairs per peer, lost after 8.6 s (timeout 18, 7 retries)");
  settings.linkLayer = static_cast<std::int32_t>(LinkLayer::ethernet);
  settings.trafficClass = 104;
  settings.mtu = 1024;
  settings.queuePairs = 8;
  settings.ackTimeout = 14;
  settings.retries = 3;
  const Rdma ethernet = plan(settings);
  ASSERT_EQ(ethernet.plans.size(), 1U);
  EXPECT_EQ(describe(ethernet.plans[0]),
            "rail 0: mlx5_0, Ethernet 400 Gb/sec (4X NDR), GID 1 (10.1.0.1), MTU 1024, traffic class 104, service "
            "level 0, 8 queue pairs per peer, lost after 0.3 s (timeout 14, 3 retries)");
}

TEST_F(RdmaMachine, TakesTheMtuOfTheInterfaceThatHasTheAddress) {
  write(sys() / "class/net/eth1/mtu", "1500");
  RdmaSettings settings;
  settings.nics = "mlx5_0";
  EXPECT_EQ(plan(settings).plans.at(0).mtu, 1024);
}

TEST_F(RdmaMachine, LeavesPortsOutThatAreDownOrHaveNoAddress) {
  write(sys() / "class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
  write(sys() / "class/net/eth1/operstate", "down");
  const Rdma rdma = plan({});
  EXPECT_TRUE(rdma.plans.empty());
  EXPECT_EQ(rdma.nics.reason,
            "no RDMA port can be used: mlx5_1: its state is DOWN; mlx5_0: its link layer is not InfiniBand");
  RdmaSettings settings;
  settings.linkLayer = static_cast<std::int32_t>(LinkLayer::ethernet);
  EXPECT_EQ(plan(settings).nics.rails.at(0).fault, "it has no RoCE v2 GID on an interface that is up");
}

}  // namespace
}  // namespace moe::test
