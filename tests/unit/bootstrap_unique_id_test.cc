// The unique id, the addresses in it, and the interfaces that they come from.
#include <gtest/gtest.h>
#include <net/if.h>

#include <set>

#include "base/error.h"
#include "bootstrap/group/failure.h"
#include "bootstrap/group/unique_id.h"
#include "bootstrap/net/find_addresses.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using namespace bootstrap;

TEST(UniqueId, ComesOutAsItWentIn) {
  const IdContents in{true, randomKey(), resolveHost("fd00::17", 4242, 20s)};
  const IdContents out = decodeUniqueId(encodeUniqueId(in));
  EXPECT_EQ(out.served, in.served);
  EXPECT_EQ(out.secret, in.secret);
  EXPECT_EQ(out.addresses, in.addresses);
  EXPECT_EQ(describe(out.addresses), "[fd00::17]:4242");
}

TEST(UniqueId, IsRefusedWhenAnyByteIsDamaged) {
  const moeUniqueId_t good = uniqueIdFor("127.0.0.1", 1234, randomKey(), 20s);
  for (std::size_t i = 0; i < sizeof(good.bytes); ++i) {
    moeUniqueId_t bad = good;
    bad.bytes[i] ^= 0x10;
    EXPECT_EQ(outcomeOf([&] { decodeUniqueId(bad); }).result, moeInvalidArgument) << "byte " << i;
  }
  EXPECT_EQ(outcomeOf([&] { decodeUniqueId(moeUniqueId_t{}); }).result, moeInvalidArgument);
}

TEST(UniqueId, OfAnotherVersionIsRefused) {
  moeUniqueId_t id = uniqueIdFor("127.0.0.1", 1234, randomKey(), 20s);
  EXPECT_EQ(id.bytes[4], 2);
  id.bytes[4] = 1;
  const Outcome outcome = outcomeOf([&] { decodeUniqueId(id); });
  EXPECT_EQ(outcome.result, moeInvalidArgument);
  EXPECT_NE(outcome.sentence.find("another version of moecomm"), std::string::npos) << outcome.sentence;
}

TEST(UniqueId, IsNewEveryTimeAndCarriesAPort) {
  std::set<Key> secrets;
  for (int i = 0; i < 20; ++i) {
    const IdContents contents = decodeUniqueId(createUniqueId(std::chrono::milliseconds(10), ""));
    secrets.insert(contents.secret);
    ASSERT_FALSE(contents.addresses.empty());
    for (const Address& address : contents.addresses) EXPECT_NE(address.port, 0);
  }
  EXPECT_EQ(secrets.size(), 20U);
}

TEST(UniqueId, SaysWhenAHostCannotBeResolved) {
  const Outcome outcome = outcomeOf([] { uniqueIdFor("no-such-host.invalid", 1234, Key{}, 20s); });
  EXPECT_EQ(outcome.result, moeSystemError);
  EXPECT_NE(outcome.sentence.find("no-such-host.invalid"), std::string::npos) << outcome.sentence;
  EXPECT_EQ(outcomeOf([] { uniqueIdFor("127.0.0.1", 0, Key{}, 20s); }).result, moeInvalidArgument);
}

TEST(Interfaces, ThatDoNotExistAreRefusedWithAListOfThoseThatDo) {
  const Outcome outcome = outcomeOf([] { localAddresses("eth42"); });
  EXPECT_EQ(outcome.result, moeInvalidArgument);
  EXPECT_NE(outcome.sentence.find("eth42"), std::string::npos) << outcome.sentence;
  EXPECT_NE(outcome.sentence.find("lo"), std::string::npos) << outcome.sentence;
}

TEST(Interfaces, LoopbackIsUsedWhenItIsNamed) {
  for (const Address& address : localAddresses("lo")) EXPECT_TRUE(address.isLoopback()) << address.text();
}

TEST(Interfaces, AreRankedByNameAndFlags) {
  EXPECT_EQ(kindOfInterface("eth0", IFF_UP), InterfaceKind::physical);
  EXPECT_EQ(kindOfInterface("ib0", IFF_UP), InterfaceKind::physical);
  EXPECT_EQ(kindOfInterface("docker0", IFF_UP), InterfaceKind::software);
  EXPECT_EQ(kindOfInterface("veth12ab", IFF_UP), InterfaceKind::software);
  EXPECT_EQ(kindOfInterface("br-0123", IFF_UP), InterfaceKind::software);
  EXPECT_EQ(kindOfInterface("br0", IFF_UP), InterfaceKind::physical);
  EXPECT_EQ(kindOfInterface("lo", IFF_UP | IFF_LOOPBACK), InterfaceKind::loopback);
}

TEST(Address, MalformedBytesAreRefused) {
  Writer good;
  Address::any(AF_INET, 80).write(good);
  for (const std::size_t at : {0U, 1U}) {
    std::vector<std::uint8_t> bytes(good.view().begin(), good.view().end());
    bytes[at] = 9;
    Reader in(bytes);
    Address out;
    EXPECT_FALSE(Address::read(in, out));
  }
  Reader tooShort(good.view().first(19));
  Address out;
  EXPECT_FALSE(Address::read(tooShort, out));
}

TEST(DescribeRanks, IsShortForLongLists) {
  const auto describeAll = [](std::vector<int> ranks, std::size_t total = 0) { return describeRanks(ranks, total); };
  EXPECT_EQ(describeAll({3}), "rank 3");
  EXPECT_EQ(describeAll({3, 4}), "ranks 3, 4");
  EXPECT_EQ(describeAll({3, 7}), "ranks 3, 7");
  EXPECT_EQ(describeAll({0, 1, 2, 5, 6, 9}), "ranks 0-2, 5, 6, 9");
  EXPECT_EQ(describeAll({1, 3, 5, 7, 9, 11, 13, 15, 17, 19}), "ranks 1, 3, 5, 7, 9, 11, 13, 15 and 2 more");
  EXPECT_EQ(describeAll({1}, 10), "ranks 1 and 9 more");
}

}  // namespace
}  // namespace moe::test
