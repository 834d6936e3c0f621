// Where a group listens, and for how long.
#include <sys/socket.h>

#include <algorithm>

#include "bootstrap/net/find_addresses.h"
#include "bootstrap/net/socket.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using bootstrap::Address;

// The addresses at which this process accepts connections over IP, one per socket.
std::vector<Address> listening() {
  std::vector<Address> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    int accepts = 0;
    socklen_t length = sizeof accepts;
    bootstrap::SocketName name;
    name.length = sizeof name.storage;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &length) != 0 || accepts == 0) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&name.storage), &name.length) != 0) continue;
    if (name.storage.ss_family == AF_INET || name.storage.ss_family == AF_INET6) {
      found.push_back(Address::of(name.get()));
    }
  }
  return found;
}

bool isOneOf(const std::vector<Address>& addresses, Address address) {
  address.port = 0;
  return std::find(addresses.begin(), addresses.end(), address) != addresses.end();
}

// The addresses at which a group of `nranks` threads listens once all have joined and the rendezvous has ended.
std::vector<Address> listeningOf(int nranks, const moeUniqueId_t& id, const std::string& interfaceName) {
  std::vector<Address> found;
  Meet joined(nranks);
  Meet seen(nranks);
  expectAllWell(inThreads(nranks, [&](int rank) {
    bootstrap::Options options = optionsOf(rank, nranks);
    options.interfaceName = interfaceName;
    auto member = Bootstrap::join(id, options);
    member->startMonitor({});
    joined.wait();
    if (rank == 0) {
      const auto port = bootstrap::decodeUniqueId(id).addresses.front().port;
      const auto end = Clock::now() + 10s;
      do {
        found = listening();
      } while (std::any_of(found.begin(), found.end(), [&](const auto& a) { return a.port == port; }) &&
               Clock::now() < end);
    }
    seen.wait();
  }));
  return found;
}

TEST(BootstrapListen, RanksThatMeetOnTheLoopbackAddressListenThereAlone) {
  const moeUniqueId_t id = bootstrap::uniqueIdFor("127.0.0.1", freePort(), {1, 2, 3}, 20s);
  bootstrap::serveUniqueId(id, 20s);
  for (const Address& address : listening()) EXPECT_EQ(address.text().rfind("127.0.0.1:", 0), 0U) << address.text();
  const auto found = listeningOf(3, id, "");
  EXPECT_FALSE(found.empty());
  for (const Address& address : found) EXPECT_TRUE(address.isLoopback()) << address.text();
}

TEST(BootstrapListen, RanksListenOnTheInterfaceThatWasChosenAlone) {
  const moeUniqueId_t id = bootstrap::createUniqueId(20s, "lo");
  const auto ofInterface = bootstrap::localAddresses("lo");
  for (const Address& address : listening()) EXPECT_TRUE(isOneOf(ofInterface, address)) << address.text();
  const auto found = listeningOf(3, id, "lo");
  EXPECT_FALSE(found.empty());
  for (const Address& address : found) EXPECT_TRUE(isOneOf(ofInterface, address)) << address.text();
}

TEST(BootstrapListen, WithoutAChoiceRanksListenAtTheAddressesThatTheyTellOthers) {
  const moeUniqueId_t id = bootstrap::createUniqueId(20s, "");
  const auto told = bootstrap::localAddresses("");
  const auto found = listeningOf(3, id, "");
  EXPECT_FALSE(found.empty());
  for (const Address& address : found) EXPECT_TRUE(isOneOf(told, address)) << address.text();
}

// The root dials any rank, to see whether it lives.
TEST(BootstrapListen, ARankListensOnceAllHaveMetUnlessItIsAlone) {
  const moeUniqueId_t one = bootstrap::createUniqueId(20s, "lo");
  EXPECT_TRUE(listeningOf(1, one, "lo").empty());
  const moeUniqueId_t three = bootstrap::createUniqueId(20s, "lo");
  EXPECT_EQ(listeningOf(3, three, "lo").size(), 3 * bootstrap::localAddresses("lo").size());
}

TEST(BootstrapListen, AMeetingPointThatIsNotOfThisHostIsServedAtAllAddresses) {
  // Stands for a service address or a forwarded port. An address for documentation belongs to no host.
  const moeUniqueId_t id = bootstrap::uniqueIdFor("203.0.113.7", freePort(), {1, 2, 3}, 20s);
  const auto before = listening().size();
  bootstrap::serveUniqueId(id, 100ms);
  EXPECT_EQ(listening().size(), before + 1);
  while (listening().size() > before) std::this_thread::sleep_for(1ms);
}

TEST(Listen, EveryAddressHasTheSamePort) {
  const auto addresses = bootstrap::localAddresses("lo");
  const bootstrap::Listener listener = bootstrap::listenTcp(addresses, 0);
  for (const Address& address : listening()) EXPECT_EQ(address.port, listener.port);
  for (Address address : addresses) {
    address.port = listener.port;
    EXPECT_TRUE(bootstrap::startConnect(address).fd) << address.text();
  }
}

// Two interfaces may have the same address, and /etc/hosts may name one twice.
TEST(Listen, TakesEachAddressOnce) {
  const Address v4 = Address::loopback(AF_INET), v6 = Address::loopback(AF_INET6);
  const bootstrap::Listener any = bootstrap::listenTcp({v4, v6, v4, v6}, 0);
  EXPECT_EQ(any.sockets.size(), bootstrap::isOfThisHost(v6) ? 2U : 1U);
  EXPECT_EQ(any.addresses.size(), any.sockets.size());
  const std::uint16_t port = freePort();
  const bootstrap::Listener fixed = bootstrap::listenTcp({v4, v4}, port);
  EXPECT_EQ(fixed.addresses.size(), 1U);
  EXPECT_EQ(fixed.port, port);
}

}  // namespace
}  // namespace moe::test
