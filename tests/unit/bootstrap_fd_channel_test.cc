// Passing descriptors between processes of one host.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "bootstrap/fd_channel.h"
#include "bootstrap/host_identity.h"
#include "unit/bootstrap_world.h"

namespace moe::test {
namespace {

using namespace bootstrap;

// A memory file that holds one number.
Fd fileWith(int value) {
  Fd fd(::memfd_create("moecomm-test", MFD_CLOEXEC));
  EXPECT_EQ(::write(fd.get(), &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
  return fd;
}

int valueIn(const Fd& fd) {
  int value = -1;
  EXPECT_EQ(::pread(fd.get(), &value, sizeof(value), 0), static_cast<ssize_t>(sizeof(value)));
  return value;
}

void exchange(Bootstrap& member) {
  const Fd mine = fileWith(1000 + member.rank());
  member.serveFd(mine.get());
  member.allGather({});
  for (int rank = 0; rank < member.nranks(); ++rank) {
    const Fd theirs = member.fetchFdFrom(rank, Deadline::after(10s));
    const int value = valueIn(theirs);
    if (value != 1000 + rank) throw Error(moeInternalError, "a wrong descriptor came");
    if ((::fcntl(theirs.get(), F_GETFD) & FD_CLOEXEC) == 0) throw Error(moeInternalError, "it is not close-on-exec");
  }
  member.barrier();
  member.stopServingFd();
}

TEST(FdChannel, PassesDescriptorsBetweenProcesses) {
  Children children(3, [](int index, const moeUniqueId_t& id, const auto&) {
    auto member = Bootstrap::join(id, optionsOf(index + 1, 4));
    exchange(*member);
  });
  const moeUniqueId_t id = createUniqueId(20s, "");
  children.start(id);
  auto member = Bootstrap::join(id, optionsOf(0, 4));
  exchange(*member);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(children.status(i), 0);
}

TEST(FdChannel, PassesDescriptorsBetweenThreadsOfSeveralGroupsAtOnce) {
  const moeUniqueId_t first = createUniqueId(20s, "");
  const moeUniqueId_t second = createUniqueId(20s, "");
  expectAllWell(inThreads(16, [&](int i) {
    auto member = Bootstrap::join(i < 8 ? first : second, optionsOf(i % 8, 8));
    exchange(*member);
    exchange(*member);
  }));
}

TEST(FdChannel, NamesTheRankThatDoesNotServe) {
  Meet over(2);
  expectAllWell(world(2, [&](Bootstrap& member) {
    if (member.rank() == 0) {
      const Outcome outcome = outcomeOf([&] { member.fetchFdFrom(1, Deadline::after(100ms)); });
      EXPECT_EQ(outcome.result, moeTimeout);
      EXPECT_NE(outcome.sentence.find("rank 1 did not pass its descriptor to rank 0"), std::string::npos)
          << outcome.sentence;
    }
    over.wait();
  }));
}

// Runs a server until it is told to stop.
class Serving {
 public:
  Serving(const Key& key, int fd) : server_(key, fd), thread_([this] { run(); }) {}
  ~Serving() {
    stop_ = true;
    thread_.join();
  }

 private:
  void run() {
    PollSet set;
    while (!stop_) {
      set.clear();
      server_.arm(set);
      set.wait(std::min(10, server_.waitMsMax()));
      server_.serve(set);
    }
  }
  FdServer server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST(FdChannel, GivesNothingToWhoDoesNotKnowTheKey) {
  const Key key = randomKey();
  const Fd file = fileWith(5);
  const Serving serving(key, file.get());
  EXPECT_EQ(valueIn(fetchFd(key, Deadline::after(5s))), 5);
  Key wrong = key;
  wrong[0] ^= 1;
  EXPECT_EQ(outcomeOf([&] { fetchFd(wrong, Deadline::after(100ms)); }).result, moeTimeout);
}

TEST(FdChannel, TheSameKeyIsNotServedTwice) {
  const Key key = randomKey();
  const Fd file = fileWith(5);
  const FdServer first(key, file.get());
  EXPECT_EQ(outcomeOf([&] { FdServer(key, file.get()); }).result, moeSystemError);
}

TEST(FdChannel, NothingRemainsOfAKilledServer) {
  const Key key = randomKey();
  Children children(1, [&](int, const moeUniqueId_t&, const auto& say) {
    const Fd file = fileWith(1);
    const FdServer server(key, file.get());
    say();
    std::this_thread::sleep_for(60s);
  });
  children.start({});
  children.awaitWord(0);
  children.kill(0);
  children.status(0);
  const Fd file = fileWith(2);
  const Serving serving(key, file.get());
  EXPECT_EQ(valueIn(fetchFd(key, Deadline::after(5s))), 2);
}

TEST(FdChannel, LeavesNoDescriptorsBehind) {
  const std::size_t before = openDescriptors();
  {
    const Key key = randomKey();
    const Fd file = fileWith(5);
    const Serving serving(key, file.get());
    for (int i = 0; i < 20; ++i) fetchFd(key, Deadline::after(5s));
  }
  EXPECT_EQ(openDescriptors(), before);
}

TEST(HostIdentity, TellsProcessesOfOneHostApart) {
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  Children children(1, [&](int, const moeUniqueId_t&, const auto&) {
    const HostIdentity identity = HostIdentity::current();
    (void)!::write(up[1], &identity, sizeof(identity));
  });
  children.start({});
  HostIdentity child{};
  ASSERT_EQ(::read(up[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ::close(up[0]);
  ::close(up[1]);
  const HostIdentity self = HostIdentity::current();
  EXPECT_TRUE(self.sameProcess(HostIdentity::current()));
  EXPECT_TRUE(self.sameHost(child));
  EXPECT_FALSE(self.sameProcess(child));
  EXPECT_EQ(self.processId, ::getpid());
  EXPECT_NE(self.processStart, 0U);
  EXPECT_NE(self.netNamespace, 0U);
}

// All that processes see who are the first of their own process namespaces, and have no /proc.
HostIdentity seenWithoutProc(HostIdentity identity) {
  identity.bootId = {};
  identity.netNamespace = identity.ipcNamespace = identity.pidNamespace = identity.processStart = 0;
  identity.processId = 1;
  return identity;
}

TEST(HostIdentity, TellsProcessesApartThatHaveTheSameIdAndNoProc) {
  const HostIdentity self = seenWithoutProc(HostIdentity::current());
  int up[2];
  ASSERT_EQ(::pipe(up), 0);
  Children children(1, [&](int, const moeUniqueId_t&, const auto&) {
    const HostIdentity identity = seenWithoutProc(HostIdentity::current());
    (void)!::write(up[1], &identity, sizeof(identity));
  });
  children.start({});
  HostIdentity child{};
  ASSERT_EQ(::read(up[0], &child, sizeof(child)), static_cast<ssize_t>(sizeof(child)));
  ::close(up[0]);
  ::close(up[1]);
  EXPECT_TRUE(self.sameHost(child));
  EXPECT_FALSE(self.sameProcess(child)) << "the number of a process was inherited by its child";
  std::vector<HostIdentity> ofThreads(8);
  expectAllWell(inThreads(8, [&](int i) { ofThreads[static_cast<std::size_t>(i)] = HostIdentity::current(); }));
  for (const HostIdentity& other : ofThreads) EXPECT_TRUE(self.sameProcess(seenWithoutProc(other)));
}

TEST(HostIdentity, OtherKernelsAndNetworkNamespacesAreOtherHosts) {
  const HostIdentity self = HostIdentity::current();
  HostIdentity other = self;
  other.netNamespace += 1;
  EXPECT_FALSE(self.sameHost(other));
  other = self;
  other.bootId[0] = other.bootId[0] == 'x' ? 'y' : 'x';
  EXPECT_FALSE(self.sameHost(other));
  EXPECT_FALSE(self.sameProcess(other));
  HostIdentity unknown = self;
  unknown.bootId = {};
  HostIdentity alsoUnknown = unknown;
  EXPECT_TRUE(unknown.sameHost(alsoUnknown));
  alsoUnknown.hostName[0] = '#';
  EXPECT_FALSE(unknown.sameHost(alsoUnknown));
}

}  // namespace
}  // namespace moe::test
