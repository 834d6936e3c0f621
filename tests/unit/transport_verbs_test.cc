// The verbs transport without an adapter: what it refuses and with which sentence, cards, attributes of queue pairs,
// and the arithmetic of back-pressure. tests/rdma tests it with the adapter in software, tests/rxe_vm with the kernel's
// RDMA in software.
#include <gtest/gtest.h>
#include <sched.h>

#include "base/error.h"
#include "support/base/fake_root.h"
#include "transport/rdma/card.h"
#include "transport/rdma/rail.h"
#include "transport/transports.h"
#include "transport/verbs/poster.h"

namespace moe::test {
namespace {

using namespace moe::verbs;

template <class Body>
std::string refusal(moeResult_t result, Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), result) << error.what();
    return error.what();
  }
  return "not refused";
}

TEST(VerbsLibrary, SaysWhatToInstallWhereThereIsNone) {
  EXPECT_EQ(refusal(moeUnsupported, [] { Library::load("libnone.so.1"); }),
            "RDMA: libnone.so.1 cannot be loaded; install rdma-core (Debian, Ubuntu: libibverbs1 and "
            "ibverbs-providers)");
}

TEST(VerbsLibrary, SaysWhichFunctionIsMissing) {
  EXPECT_EQ(refusal(moeUnsupported, [] { Library::load("libm.so.6"); }),
            "RDMA: libm.so.6 has no ibv_get_device_list: it is too old");
}

class VerbsMachine : public FakeRoot {
 protected:
  RemoteSetup setup(const std::string& nics = "") {
    topology::RdmaSettings rdma;
    rdma.nics = nics;
    return {0, 2, {1}, window_.data(), window_.size(), *backend_, log_, orders_, "", rdma, {}};
  }

  const WaitOrders orders_{0, 30'000'000'000};
  std::unique_ptr<Backend> backend_ = makeHostBackend();
  Log log_;
  std::vector<std::uint8_t> window_ = std::vector<std::uint8_t>(4096);
};

TEST_F(VerbsMachine, IsRefusedWithoutAnAdapter) {
  EXPECT_EQ(refusal(moeUnsupported, [&] { chooseRails(setup(), sys()); }), "RDMA: this machine has no RDMA adapter");
  EXPECT_EQ(refusal(moeInvalidArgument, [&] { chooseRails(setup("mlx5_7"), sys()); }),
            "MOECOMM_NICS names mlx5_7, which this machine does not have; it has none");
}

// It is not enough that sysfs shows an adapter: libibverbs must show it too. On a kernel without RDMA, libibverbs
// cannot list adapters at all.
TEST_F(VerbsMachine, IsRefusedIfLibibverbsDoesNotShowTheAdapter) {
  addGid(addRdma("none_0", "0000:00:01.0", "eth1", "Ethernet"), 0, "0000:0000:0000:0000:0000:ffff:0a01:0001", "RoCE v2",
         "eth1");
  const std::string why = refusal(moeUnsupported, [&] { makeVerbsTransport(setup(), sys()); });
  EXPECT_TRUE(why.find("RDMA: libibverbs does not show none_0") == 0 ||
              why.find("RDMA: libibverbs cannot list the adapters: ") == 0)
      << why;
}

TEST_F(VerbsMachine, PlansQueuePairsNearTheAdapter) {
  addGid(addRdma("mlx5_0", "0000:00:01.0", "eth1", "Ethernet"), 3, "0000:0000:0000:0000:0000:ffff:0a01:0001", "RoCE v2",
         "eth1");
  write(sys() / "devices/pci0000:00/0000:00:01.0/local_cpulist", "0-2,8");
  const std::vector<Rail> rails = chooseRails(setup(), sys());
  ASSERT_EQ(rails.size(), 1U);
  const Rail& rail = rails[0];
  EXPECT_EQ(rail.plan.port.nic, "mlx5_0");
  EXPECT_EQ(rail.plan.gidIndex, 3);
  EXPECT_EQ(rail.plan.queuePairs, 4);
  EXPECT_EQ(rail.plan.retries, 6);  // because the driver is unknown
  EXPECT_EQ(rail.cpus, (std::vector<int>{0, 1, 2, 8}));
}

TEST(VerbsRail, KeepsRetriesFinite) {
  EXPECT_EQ(retriesFor(7, "mlx5_core"), 7);
  EXPECT_EQ(retriesFor(7, ""), 6);
  EXPECT_EQ(retriesFor(7, "bnxt_en"), 6);
  EXPECT_EQ(retriesFor(3, ""), 3);
}

TEST(VerbsRail, ReadsListsOfProcessors) {
  EXPECT_EQ(parseCpuList("4"), std::vector<int>{4});
  EXPECT_EQ(parseCpuList("0-1,16-17"), (std::vector<int>{0, 1, 16, 17}));
  EXPECT_TRUE(parseCpuList("").empty());
  EXPECT_TRUE(parseCpuList("none").empty());
  EXPECT_EQ(parseCpuList("1,x"), std::vector<int>{1});
}

topology::Rdma someRails(int count) {
  topology::Rdma rdma;
  rdma.plans.resize(static_cast<std::size_t>(count));
  for (int rail = 0; rail < count; ++rail) rdma.plans[static_cast<std::size_t>(rail)].rail = rail;
  return rdma;
}

std::vector<int> railsOf(const std::vector<topology::RdmaPlan>& plans) {
  std::vector<int> rails;
  for (const topology::RdmaPlan& plan : plans) rails.push_back(plan.rail);
  return rails;
}

TEST(VerbsRail, SharesRailsAmongTheRanksOfAHost) {
  const topology::Rdma rdma = someRails(3);
  EXPECT_EQ(railsOf(plansFor(rdma, -1, 0, 1)), (std::vector{0}));
  EXPECT_EQ(railsOf(plansFor(rdma, -1, 5, 1)), (std::vector{2}));
  EXPECT_EQ(railsOf(plansFor(rdma, -1, 0, 2)), (std::vector{0, 1}));
  EXPECT_EQ(railsOf(plansFor(rdma, -1, 1, 2)), (std::vector{2, 0}));
  EXPECT_EQ(railsOf(plansFor(rdma, -1, 1, 8)), (std::vector{0, 1, 2}));  // there are only three
  EXPECT_EQ(indexInDomain(5, {0, 1, 2, 3}), 1);
  EXPECT_EQ(indexInDomain(1, {0, 2, 3}), 0);
}

TEST(VerbsRail, GivesAGpuAllOfItsRailsThatCanBeUsed) {
  topology::Rdma rdma = someRails(4);
  rdma.plans.erase(rdma.plans.begin() + 2);  // rail 2 is down
  rdma.nics.ofGpus = {{{1}}, {{2}}, {{0}, {3}}, {{2}, {3}}};
  EXPECT_EQ(railsOf(plansFor(rdma, 0, 7, 1)), (std::vector{1}));
  EXPECT_EQ(railsOf(plansFor(rdma, 2, 7, 1)), (std::vector{0, 3}));
  EXPECT_EQ(railsOf(plansFor(rdma, 3, 7, 1)), (std::vector{3}));
  EXPECT_EQ(refusal(moeUnsupported, [&] { plansFor(rdma, 1, 0, 1); }),
            "RDMA: the adapter of this rank's GPU cannot be used");
}

TEST(VerbsRail, UsesAsManyRailsAsShareTheConnectionsEvenly) {
  EXPECT_EQ(railsFor(4, 1), 1);
  EXPECT_EQ(railsFor(4, 2), 2);
  EXPECT_EQ(railsFor(4, 3), 2);
  EXPECT_EQ(railsFor(3, 2), 1);
  EXPECT_EQ(railsFor(3, 3), 3);
  EXPECT_EQ(railsFor(8, 8), kPutRingsMax);
  EXPECT_EQ(railsFor(1, 2), 1);
}

// Otherwise a connection's ring could belong to another adapter.
TEST(VerbsRail, HasEquallyManyThreadsForEachRail) {
  for (int rails = 1; rails <= kPutRingsMax; ++rails) {
    for (int wanted = 1; wanted <= kPutRingsMax; ++wanted) {
      const int threads = threadsFor(wanted, rails);
      EXPECT_EQ(threads % rails, 0) << wanted << " for " << rails;
      EXPECT_GE(threads, rails);
      EXPECT_LE(threads, kPutRingsMax);
    }
  }
  EXPECT_EQ(threadsFor(2, 1), 2);
  EXPECT_EQ(threadsFor(2, 2), 2);
  EXPECT_EQ(threadsFor(3, 2), 4);
  EXPECT_EQ(threadsFor(4, 3), 3);
}

TEST(VerbsThreads, RunNearTheAdapterIfTheyMay) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int mine = 0;
  while (!CPU_ISSET(mine, &allowed)) ++mine;
  const ThreadPlace near = placeNear({mine, 1000});
  EXPECT_EQ(near.cpus, std::vector{mine});
  EXPECT_FALSE(near.refused);
  EXPECT_EQ(near.text, "on processors " + std::to_string(mine));
  const ThreadPlace far = placeNear({1000, 1001, 1002, 1009});
  EXPECT_TRUE(far.cpus.empty());
  EXPECT_TRUE(far.refused);
  EXPECT_EQ(far.text, "far from the adapter, as this process may not run on processors 1000-1002,1009");
  EXPECT_FALSE(placeNear({}).refused);
  EXPECT_EQ(placeNear({}).text, "on any processor, as sysfs names none near the adapter");
}

TEST(VerbsThreads, NameProcessorsAsSysfsDoes) {
  for (const char* list : {"", "4", "0-1,16-17", "0,2,4", "0-95"}) EXPECT_EQ(cpuListText(parseCpuList(list)), list);
}

Card someCard() {
  Card card;
  card.rails.resize(2);
  card.rails[0].mtu = 4096;
  CardRail& rail = card.rails[1];
  rail.address.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 0, 2};
  rail.lid = 17;
  rail.mtu = 1024;
  rail.dataKey = 0xabcd;
  rail.wordKey = 0xabce;
  card.window = 0x7f0012340000;
  card.windowBytes = 1 << 20;
  card.connections = 2;
  card.queues = {{0x11, 100}, {0x21, 101}, {0x12, 102}, {0x22, 0xffffff}, {}, {}};
  return card;
}

TEST(VerbsCard, ComesBackAsItWas) {
  const Card card = decode(encode(someCard()), 1, 3);
  ASSERT_EQ(card.rails.size(), 2U);
  EXPECT_EQ(card.railOf(2).mtu, 4096);  // connections take the adapters in turn
  const CardRail& rail = card.railOf(3);
  EXPECT_EQ(rail.address.gid, someCard().rails[1].address.gid);
  EXPECT_EQ(rail.address.layer, topology::LinkLayer::ethernet);
  EXPECT_EQ(rail.lid, 17);
  EXPECT_EQ(rail.mtu, 1024);
  EXPECT_EQ(rail.dataKey, 0xabcdU);
  EXPECT_EQ(rail.wordKey, 0xabceU);
  EXPECT_EQ(card.window, 0x7f0012340000U);
  EXPECT_EQ(card.windowBytes, 1U << 20);
  EXPECT_EQ(card.connections, 2);
  EXPECT_EQ(card.queue(1, 0).number, 0x12U);
  EXPECT_EQ(card.queue(1, 1).number, 0x22U);
  EXPECT_EQ(card.queue(1, 1).firstPacket, 0xffffffU);
}

TEST(VerbsCard, IsRefusedWithItsRank) {
  const auto why = [](CardBytes bytes, int nranks = 3) {
    return refusal(moeInvalidUsage, [&] { decode(bytes, 5, nranks); });
  };
  const std::string head = "RDMA: the card of rank 5 ";
  CardBytes bytes = encode(someCard());
  EXPECT_EQ(why(bytes, 4), head + "is for 3 ranks, not 4");
  EXPECT_EQ(why({1, 2, 3}), head + "has 3 bytes, too few");
  bytes.pop_back();
  EXPECT_EQ(why(bytes), head + "is for 3 ranks, not 3");
  Card none = someCard();
  none.connections = 0;
  EXPECT_EQ(why(encode(none)), head + "has 0 connections with each rank");
  none = someCard();
  none.rails.clear();
  EXPECT_EQ(why(encode(none)), head + "has 0 adapters");
  bytes = encode(someCard());
  bytes[4] = 9;
  EXPECT_EQ(why(bytes), head + "is of version 9, not 3");
  bytes[0] = 0;
  EXPECT_EQ(why(bytes), head + "is of another transport");
}

topology::RdmaPlan somePlan() {
  topology::RdmaPlan plan;
  plan.port = {"mlx5_0", 2};
  plan.gidIndex = 3;
  plan.trafficClass = 104;
  plan.serviceLevel = 5;
  plan.ackTimeout = 16;
  plan.retries = 6;
  return plan;
}

TEST(VerbsConnection, LeadsToThePeerOverEthernet) {
  const Card peer = someCard();
  CardRail mine = peer.railOf(1);
  mine.mtu = 4096;
  const QueueAttributes to = receiveAttributes(somePlan(), mine, peer.railOf(1), peer.queue(1, 1), false);
  EXPECT_EQ(to.values.path_mtu, IBV_MTU_1024);  // the smaller of the two
  EXPECT_EQ(to.values.dest_qp_num, 0x22U);      // the peer's
  EXPECT_EQ(to.values.rq_psn, 0xffffffU);
  EXPECT_EQ(to.values.ah_attr.is_global, 1);
  EXPECT_EQ(to.values.ah_attr.port_num, 2);
  EXPECT_EQ(to.values.ah_attr.sl, 5);
  EXPECT_EQ(to.values.ah_attr.grh.sgid_index, 3);
  EXPECT_EQ(to.values.ah_attr.grh.traffic_class, 104);
  EXPECT_EQ(to.values.ah_attr.grh.dgid.raw[15], 2);
  EXPECT_TRUE(to.mask & IBV_QP_AV);
}

TEST(VerbsConnection, NeedsNoGlobalRouteWithinAnInfiniBandSubnet) {
  CardRail card = someCard().railOf(1);
  card.address.layer = topology::LinkLayer::infiniBand;
  CardRail far = card;
  far.address.gid[0] = 0xfe;
  EXPECT_EQ(receiveAttributes(somePlan(), card, card, {}, false).values.ah_attr.is_global, 0);
  EXPECT_EQ(receiveAttributes(somePlan(), card, card, {}, false).values.ah_attr.dlid, 17);
  EXPECT_EQ(receiveAttributes(somePlan(), card, card, {}, true).values.ah_attr.is_global, 1);
  EXPECT_EQ(receiveAttributes(somePlan(), card, far, {}, false).values.ah_attr.is_global, 1);
  EXPECT_EQ(receiveAttributes(somePlan(), card, far, {}, false).values.ah_attr.grh.traffic_class, 0);
}

TEST(VerbsConnection, SendsAgainAsThePlanSays) {
  const QueueAttributes to = sendAttributes(somePlan(), 77);
  EXPECT_EQ(to.values.timeout, 16);
  EXPECT_EQ(to.values.retry_cnt, 6);
  EXPECT_EQ(to.values.sq_psn, 77U);
  EXPECT_EQ(initialAttributes(2).values.qp_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_WRITE));
}

TEST(VerbsConnection, NamesMtusByTheirCodes) {
  EXPECT_EQ(mtuCode(4096), IBV_MTU_4096);
  EXPECT_EQ(mtuCode(9000), IBV_MTU_4096);
  EXPECT_EQ(mtuCode(1500), IBV_MTU_1024);
  EXPECT_EQ(mtuCode(100), IBV_MTU_256);
  EXPECT_EQ(mtuBytes(IBV_MTU_2048), 2048);
}

TEST(VerbsBudget, NeverHoldsMoreThanTheQueue) {
  SendBudget budget(4);
  for (std::uint64_t number = 1; number <= 4; ++number) {
    EXPECT_FALSE(budget.full());
    EXPECT_EQ(budget.take(), number);
  }
  EXPECT_TRUE(budget.full());
  budget.complete(3);
  budget.complete(2);  // already known
  EXPECT_FALSE(budget.full());
  EXPECT_FALSE(budget.idle());
  budget.complete(4);
  EXPECT_TRUE(budget.idle());
}

// Otherwise a full queue of unsignalled requests would never have room again.
TEST(VerbsBudget, SignalsSomeRequestOfEveryFullQueue) {
  for (const int depth : {1, 4, 5, 64, 256}) {
    SendBudget budget(depth);
    std::uint64_t signalled = 0;
    while (!budget.full()) {
      const std::uint64_t number = budget.take();
      if (!budget.signalDue()) continue;
      budget.signalLast();
      signalled = number;
    }
    EXPECT_GT(signalled, 0U) << depth;
    EXPECT_GE(signalled * 4, static_cast<std::uint64_t>(depth) * 3) << depth;
  }
}

TEST(VerbsBudget, FitsTheCompletionsOfAllPeers) {
  EXPECT_EQ(queueDepthFor(8, 32768, 4 << 20), kQueueDepth);
  EXPECT_EQ(queueDepthFor(1024, 32768, 65536), 64);
  EXPECT_EQ(queueDepthFor(8, 100, 65536), 100);
  EXPECT_LT(queueDepthFor(1024, 100, 1024), kQueueDepthMin);
}

TEST(VerbsCarrier, RestsTheLongerTheLessThereIsToDo) {
  using namespace std::chrono_literals;
  EXPECT_EQ(restAfter(0us), 0us);
  EXPECT_LE(restAfter(100us), 20us);
  EXPECT_LE(restAfter(1s), 1ms);
  EXPECT_LT(restAfter(100us), restAfter(1s));
}

TEST(VerbsSender, SaysWhichWriteFailedAndWhy) {
  ibv_wc completion{};
  completion.qp_num = 0x11;
  completion.vendor_err = 0x81;
  const SendFailure failure = describeFailure(5, "transport retry counter exceeded", completion);
  EXPECT_EQ(failure.result, moeRemoteError);
  EXPECT_EQ(failure.rank, 5);
  EXPECT_EQ(failure.text,
            "RDMA write to rank 5 failed: transport retry counter exceeded (queue pair 0x11, vendor error 0x81)");
}

// The peer's adapter reports it too, but perhaps later.
TEST(VerbsSender, AFlushThatComesFirstIsTheOtherEndsFault) {
  ibv_wc completion{};
  completion.qp_num = 0x11;
  completion.status = IBV_WC_WR_FLUSH_ERR;
  const SendFailure failure = describeFailure(5, "Work Request Flushed Error", completion);
  EXPECT_EQ(failure.result, moeRemoteError);
  EXPECT_EQ(failure.rank, 5);
  EXPECT_EQ(failure.text,
            "the connection with rank 5 broke: the adapter here has refused that rank's writes (queue pair 0x11)");
}

TEST(VerbsEvents, AreFatalOrNotes) {
  EXPECT_TRUE(endsTheTransport(IBV_EVENT_PORT_ERR));
  EXPECT_TRUE(endsTheTransport(IBV_EVENT_QP_FATAL));
  EXPECT_TRUE(endsTheTransport(IBV_EVENT_QP_ACCESS_ERR));
  EXPECT_FALSE(endsTheTransport(IBV_EVENT_PORT_ACTIVE));
  EXPECT_FALSE(endsTheTransport(IBV_EVENT_GID_CHANGE));
  EXPECT_FALSE(endsTheTransport(IBV_EVENT_COMM_EST));
}

}  // namespace
}  // namespace moe::test
