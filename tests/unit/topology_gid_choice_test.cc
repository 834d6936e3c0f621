// Which address of a port is chosen, and which ends can reach each other.
#include <gtest/gtest.h>

#include "base/error.h"
#include "topology/gid_choice.h"

namespace moe::test {
namespace {

using namespace moe::topology;

constexpr const char* kV1 = "IB/RoCE v1";
constexpr const char* kV2 = "RoCE v2";

GidEntry entry(int index, const char* gid, const char* type, bool up = true) {
  return {index, parseGid(gid).value(), type, "eth0", up, 9000};
}

// As the kernel fills it, with v1 and v2 of each address of the interface.
const std::vector<GidEntry> kTable = {
    entry(0, "fe80::1", kV1),  entry(1, "fe80::1", kV2),  entry(2, "fd00:1::1", kV1),  entry(3, "fd00:1::1", kV2),
    entry(4, "10.1.0.1", kV1), entry(5, "10.1.0.1", kV2), entry(6, "192.168.0.1", kV2)};

int chosen(const RdmaSettings& settings, const std::vector<GidEntry>& table = kTable) {
  return chooseGid(LinkLayer::ethernet, table, settings).index;
}

TEST(Gid, ReadsAndWritesBothFamilies) {
  EXPECT_EQ(textOf(parseGid("0000:0000:0000:0000:0000:ffff:0a01:0001").value()), "10.1.0.1");
  EXPECT_EQ(textOf(parseGid("fe80:0000:0000:0000:0e42:a1ff:fe00:0001").value()), "fe80::e42:a1ff:fe00:1");
  EXPECT_EQ(kindOf(parseGid("169.254.3.4").value()), GidKind::linkLocal);
  EXPECT_EQ(kindOf(parseGid("fd00::1").value()), GidKind::ipv6);
  EXPECT_FALSE(parseGid("mlx5_0"));
}

TEST(Gid, KnowsWhatAPrefixCovers) {
  const auto covers = [](const char* prefix, const char* gid) {
    return parseGidPrefix(prefix).value().covers(parseGid(gid).value());
  };
  EXPECT_TRUE(covers("10.0.0.0/8", "10.200.0.1"));
  EXPECT_FALSE(covers("10.0.0.0/8", "11.0.0.1"));
  EXPECT_TRUE(covers("10.1.0.0/23", "10.1.1.9"));
  EXPECT_FALSE(covers("10.1.0.0/23", "10.1.2.9"));
  EXPECT_TRUE(covers("fd00:1::/64", "fd00:1::7"));
  EXPECT_TRUE(covers("::/0", "10.1.0.1"));
  for (const char* text : {"10.0.0.0", "10.0.0.0/33", "fd00::/129", "10.0.0.0/x", "10.0.0/8", "/8", ""}) {
    EXPECT_FALSE(parseGidPrefix(text)) << text;
  }
}

TEST(GidChoice, PrefersIpv4ThenIpv6ThenLinkLocal) {
  EXPECT_EQ(chosen({}), 5);
  EXPECT_EQ(chosen({}, {kTable[0], kTable[1], kTable[3]}), 3);
  EXPECT_EQ(chosen({}, {kTable[0], kTable[1]}), 1);
}

TEST(GidChoice, TakesOnlyRoceV2OnAnInterfaceThatIsUp) {
  EXPECT_EQ(chosen({}, {kTable[1], entry(5, "10.1.0.1", kV2, false)}), 1);
  const GidChoice none = chooseGid(LinkLayer::ethernet, {kTable[4]}, {});
  EXPECT_EQ(none.index, -1);
  EXPECT_EQ(none.reason, "it has no RoCE v2 GID on an interface that is up");
}

TEST(GidChoice, TakesIndexZeroOfInfiniBand) {
  const std::vector<GidEntry> table = {entry(0, "fe80::8:f1", ""), entry(1, "fec0::8:f1", "")};
  EXPECT_EQ(chooseGid(LinkLayer::infiniBand, table, {}).index, 0);
  RdmaSettings second;
  second.gidIndex = 1;
  EXPECT_EQ(chooseGid(LinkLayer::infiniBand, table, second).index, 1);
}

TEST(GidChoice, IsNarrowedByFamilyAndPrefix) {
  RdmaSettings settings;
  settings.gidFamily = static_cast<std::int32_t>(GidFamily::ipv6);
  EXPECT_EQ(chosen(settings), 3);
  settings.gidFamily = static_cast<std::int32_t>(GidFamily::automatic);
  settings.gidPrefix = "192.168.0.0/16";
  EXPECT_EQ(chosen(settings), 6);
  settings.gidPrefix = "172.16.0.0/12";
  EXPECT_EQ(chooseGid(LinkLayer::ethernet, kTable, settings).reason,
            "it has no RoCE v2 GID in 172.16.0.0/12 on an interface that is up");
  settings.gidPrefix = "172.16";
  EXPECT_THROW(chosen(settings), Error);
}

TEST(GidChoice, TakesTheIndexThatIsAskedForOrSaysWhyNot) {
  RdmaSettings settings;
  settings.gidIndex = 3;
  EXPECT_EQ(chosen(settings), 3);
  settings.gidIndex = 4;
  EXPECT_EQ(chooseGid(LinkLayer::ethernet, kTable, settings).reason, "its GID 4 is IB/RoCE v1, not RoCE v2");
  settings.gidIndex = 9;
  EXPECT_EQ(chooseGid(LinkLayer::ethernet, kTable, settings).reason, "its GID 9 is empty");
}

TEST(GidChoice, SaysWhichEndsCannotMeet) {
  const auto apart = [](LinkLayer layer, const char* mine, const char* theirs) {
    return whyApart({layer, parseGid(mine).value()}, {layer, parseGid(theirs).value()});
  };
  EXPECT_EQ(apart(LinkLayer::ethernet, "10.1.0.1", "10.1.0.2"), "");
  EXPECT_EQ(apart(LinkLayer::ethernet, "10.1.0.1", "10.9.0.2"), "");  // there may be a route
  EXPECT_EQ(apart(LinkLayer::ethernet, "10.1.0.1", "fe80::2"),
            "10.1.0.1 is IPv4, fe80::2 is link-local; set MOECOMM_RDMA_GID_FAMILY or MOECOMM_RDMA_GID_PREFIX to the "
            "same value on all ranks");
  EXPECT_EQ(apart(LinkLayer::infiniBand, "fe80::1", "fe80::2"), "");
  EXPECT_EQ(apart(LinkLayer::infiniBand, "fe80::1", "fec0:0:0:7::2"),
            "fe80::1 and fec0:0:0:7::2 are in different InfiniBand subnets");
  EXPECT_EQ(whyApart({LinkLayer::infiniBand, {}}, {LinkLayer::ethernet, {}}),
            "one end is InfiniBand, the other Ethernet; set MOECOMM_RDMA_LINK_LAYER to the same value on all ranks");
}

}  // namespace
}  // namespace moe::test
