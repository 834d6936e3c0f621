// Passing descriptors between processes of one host.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <fstream>

#include "bootstrap/group/fd_channel.h"
#include "bootstrap/group/host_identity.h"
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

// The other ranks wait for rank 2's descriptor, while rank 2 waits for them in the next collective. They know the cause
// and must report it first.
TEST(FdChannel, ARankThatDoesNotServeIsNamedByAll) {
  const moeUniqueId_t id = createUniqueId(20s, "");
  Meet over(4);
  const auto outcomes = inThreads(4, [&](int rank) {
    auto member = Bootstrap::join(id, optionsOf(rank, 4, 2s));
    const Fd mine = fileWith(rank);
    if (rank != 2) member->serveFd(mine.get());
    member->allGather({});
    Outcome fetched;
    if (rank != 2) fetched = outcomeOf([&] { member->fetchFdFrom(2, Deadline::after(2300ms)); });
    const std::vector<std::uint8_t> said(fetched.sentence.begin(), fetched.sentence.end());
    std::vector<std::vector<std::uint8_t>> all;
    const Outcome gathered = outcomeOf([&] { all = member->allGather(said); });
    over.wait();
    if (gathered.result != moeSuccess) throw Error(gathered.result, gathered.sentence);
    throw Error(moeTimeout, {all[0].begin(), all[0].end()});
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.sentence, "rank 2 did not pass its descriptor to rank 0 in time (Connection refused)");
  }
}

// Runs a server until the object ends.
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

// The server's socket name, as any process of this host can read it.
std::string localNameOf(const Key& key) {
  const std::string name = fmt::format("moecomm-fd-{:02x}", fmt::join(deriveKey(key, "fd name"), ""));
  std::ifstream sockets("/proc/net/unix");
  const std::string all(std::istreambuf_iterator<char>(sockets), {});
  EXPECT_NE(all.find("@" + name), std::string::npos);
  return name;
}

Fd connectTo(const std::string& name) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length), 0) << std::strerror(errno);
  return fd;
}

// Sends `bytes` with descriptors attached.
void sendWith(int socket, std::span<const std::uint8_t> bytes, std::span<const int> fds) {
  iovec part{const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  EXPECT_EQ(::sendmsg(socket, &message, MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size())) << std::strerror(errno);
}

// A pipe that shows whether any process still holds its writing end.
struct WatchedPipe {
  Fd reading, writing;
  WatchedPipe() {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading = Fd(ends[0]);
    writing = Fd(ends[1]);
  }
  bool isForgotten(std::chrono::milliseconds patience) {
    writing.reset();
    pollfd end{reading.get(), POLLIN, 0};
    return ::poll(&end, 1, static_cast<int>(patience.count())) == 1 && (end.revents & POLLHUP) != 0;
  }
};

TEST(FdChannel, KeepsNoDescriptorThatAStrangerSends) {
  const Key key = randomKey();
  const Fd file = fileWith(5);
  const Serving serving(key, file.get());
  const auto hello = Handshake(Handshake::Side::client, Key{}, Key{}).start();
  std::vector<Fd> strangers;  // they cannot answer the challenge that follows, and stay connected
  for (const std::size_t count : {1U, 2U, 9U}) {
    strangers.push_back(connectTo(localNameOf(key)));
    WatchedPipe pipe;
    sendWith(strangers.back().get(), hello, std::vector<int>(count, pipe.writing.get()));
    EXPECT_TRUE(pipe.isForgotten(2s)) << count << " descriptors";
  }
  EXPECT_EQ(valueIn(fetchFd(key, Deadline::after(5s))), 5);
}

TEST(FdChannel, KeepsTheFirstDescriptorOfThoseThatCome) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  const Key key = randomKey();
  Link server(Fd(ends[0]), Handshake::Side::server, key, maskOf(FrameType::fdRequest));
  Link client(Fd(ends[1]), Handshake::Side::client, key, maskOf(FrameType::fdReply));
  client.wantFd();
  for (int i = 0; i < 4; ++i) client.pump(POLLOUT | POLLIN), server.pump(POLLOUT | POLLIN);
  ASSERT_TRUE(server.open() && client.open());
  WatchedPipe second, third;
  const Fd file = fileWith(7);
  const auto reply = encodeFrame(FrameType::fdReply, 0);
  sendWith(server.fd(), reply, std::array{file.get(), second.writing.get()});
  sendWith(server.fd(), reply, std::array{third.writing.get()});
  client.pump(POLLIN), client.pump(POLLIN);
  EXPECT_EQ(valueIn(client.takeFd()), 7);
  EXPECT_TRUE(second.isForgotten(10s));
  EXPECT_TRUE(third.isForgotten(10s));
}

TEST(FdChannel, DealsWithProcessesOfTheSameUserAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to be another user";
  constexpr uid_t kOther = 65534;
  const Key ours = randomKey(), theirs = randomKey();
  Children children(1, [&](int, const moeUniqueId_t&, const auto& say) {
    if (::setresuid(kOther, kOther, kOther) != 0) throw Error(moeSystemError, "setresuid");
    const Fd file = fileWith(1);
    const Serving serving(theirs, file.get());
    const Outcome outcome = outcomeOf([&] { fetchFd(ours, Deadline::after(300ms)); });
    const bool says =
        outcome.sentence.find("its socket belongs to user 0, this process to user 65534") != std::string::npos;
    if (!says) throw Error(moeInternalError, outcome.sentence);
    say();
    std::this_thread::sleep_for(60s);
  });
  const Fd file = fileWith(5);
  const Serving serving(ours, file.get());
  children.start({});
  children.awaitWord(0);
  const Outcome outcome = outcomeOf([&] { fetchFd(theirs, Deadline::after(300ms)); });
  EXPECT_NE(outcome.sentence.find("its socket belongs to user 65534, this process to user 0"), std::string::npos)
      << outcome.sentence;
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

// The identity of processes that have no /proc and are each the first of their own process namespace.
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
