// Connections over several adapters of a rank, and where their threads run. Ranks are in one process, over two adapters
// in software: run it with FAKE_MLX5_DEVICES=2.
#include <dlfcn.h>
#include <sched.h>

#include <set>

#include "rdma/rdma_world.h"
#include "transport/rdma/card.h"

namespace moe::test {
namespace {

constexpr std::size_t kRowBytes = 768;
constexpr std::uint64_t kOutgoing = 4096, kIncoming = 65536;
constexpr int kConnections = 8, kRows = 6;

// The number of work elements that the adapter mlx5_<device> has taken.
std::uint64_t takenBy(int device) {
  using Count = unsigned long (*)(const char*);
  static const auto count = reinterpret_cast<Count>(::dlsym(RTLD_DEFAULT, "fake_mlx5_count"));
  return count(("wqes_" + std::to_string(device)).c_str());
}

MemberOptions withRails(int kind, LogLines* lines, std::function<int(int)> railsOf) {
  MemberOptions options = overRdma(lines, kind);
  options.make = [kind, railsOf](RemoteSetup setup, const TcpOptions&) {
    setup.rdma.nicsPerGpu = railsOf(setup.rank);
    return makeRemoteTransport(std::move(setup), kind);
  };
  return options;
}

std::uint64_t wordOf(int connection) {
  return static_cast<std::uint64_t>(connection) * sizeof(std::uint64_t);
}
std::uint64_t rowOf(int connection, int row) {
  return static_cast<std::uint64_t>(connection * kRows + row) * kRowBytes;
}
std::uint32_t seedOf(int from, std::uint32_t round, int connection, int row) {
  return ((static_cast<std::uint32_t>(from) * 1000 + round) * kConnections + static_cast<std::uint32_t>(connection)) *
             kRows +
         static_cast<std::uint32_t>(row);
}

// Exchanges rows and their word by each connection, both ways. When a word has arrived, so have the rows before it.
void exchange(Members& members, std::uint32_t rounds) {
  members.run([&](Member& me, int rank) {
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      for (int connection = 0; connection < kConnections; ++connection) {
        const auto by = static_cast<std::uint64_t>(connection);
        for (int row = 0; row < kRows; ++row) {
          const std::uint64_t at = rowOf(connection, row);
          fillRow(me.at(kOutgoing + at), kRowBytes, seedOf(rank, round, connection, row));
          ASSERT_TRUE(me.post(putBytes(1 - rank, kIncoming + at, kOutgoing + at, kRowBytes, by)));
        }
        ASSERT_TRUE(me.post(moe::putWord(1 - rank, wordOf(connection), round, by)));
      }
      for (int connection = 0; connection < kConnections; ++connection) {
        me.await(wordOf(connection), round);
        for (int row = 0; row < kRows; ++row) {
          EXPECT_TRUE(
              rowIs(me.at(kIncoming + rowOf(connection, row)), kRowBytes, seedOf(1 - rank, round, connection, row)))
              << "round " << round << ", connection " << connection << ", row " << row;
        }
      }
      ASSERT_TRUE(me.putWord(1 - rank, wordOf(kConnections), round));
      me.await(wordOf(kConnections), round);  // the peer has read what the next round overwrites
    }
  });
}

class Rails : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(fakeSys() / "class/infiniband/mlx5_1")) << "FAKE_MLX5_DEVICES is not 2";
  }
};

TEST_P(Rails, BothAdaptersOfARankCarryItsPuts) {
  LogLines lines;
  {
    Members members(2, withRails(GetParam(), &lines, [](int) { return 2; }));
    const std::uint64_t first = takenBy(0), second = takenBy(1);
    exchange(members, 30);
    const std::uint64_t byFirst = takenBy(0) - first, bySecond = takenBy(1) - second;
    // Each adapter has half of the connections. The words that acknowledge the reading all go by one connection.
    constexpr std::uint64_t kEach = 30 * 2 * kConnections / 2 * (kRows + 1);
    EXPECT_GE(byFirst, kEach);
    EXPECT_GE(bySecond, kEach);
    EXPECT_LE(byFirst + bySecond, 2 * kEach + 60);
    members.run([](Member& me, int) { me.finish(); });
    members.expectNoFailure();
  }
  EXPECT_NE(lines.text().find("rail 0: mlx5_0, "), std::string::npos) << lines.text();
  EXPECT_NE(lines.text().find("rail 1: mlx5_1, "), std::string::npos) << lines.text();
  EXPECT_NE(lines.text().find("MTU 4096, traffic class 0, service level 0, 2 queue pairs per peer"), std::string::npos);
  EXPECT_EQ(RdmaFolder::ofProcess().violations(), "");
}

// Adapter i of one rank meets adapter i of the other. The cards say so, and the queue pairs answer to nobody else.
TEST_P(Rails, LikeMeetsLike) {
  Members members(2, withRails(GetParam(), nullptr, [](int) { return 2; }));
  for (const CardBytes& bytes : members.cards()) {
    const verbs::Card card = verbs::decode(bytes, 0, 2);
    ASSERT_EQ(card.rails.size(), 2U);
    EXPECT_EQ(topology::textOf(card.railOf(0).address.gid), "10.0.0.1");
    EXPECT_EQ(topology::textOf(card.railOf(3).address.gid), "10.0.0.2");
    EXPECT_NE(card.railOf(0).dataKey, card.railOf(1).dataKey);
  }
}

TEST_P(Rails, ARankWithOneAdapterMeetsOneWithTwo) {
  Members members(2, withRails(GetParam(), nullptr, [](int rank) { return rank == 0 ? 2 : 1; }));
  const std::uint64_t first = takenBy(0), second = takenBy(1);
  exchange(members, 10);
  EXPECT_GT(takenBy(0), first);
  EXPECT_GT(takenBy(1), second);
  members.run([](Member& me, int) { me.finish(); });
  members.expectNoFailure();
  EXPECT_EQ(RdmaFolder::ofProcess().violations(), "");
}

// One connection cannot use two adapters evenly, so it uses one.
TEST_P(Rails, OneConnectionGoesByOneAdapter) {
  LogLines lines;
  MemberOptions options = withRails(GetParam(), &lines, [](int) { return 2; });
  options.rdma.queuePairs = 1;
  Members members(2, options);
  exchange(members, 3);
  EXPECT_EQ(lines.text().find("mlx5_1"), std::string::npos) << lines.text();
}

std::string nameOf(const testing::TestParamInfo<int>& info) {
  return info.param == moeTransportVerbs ? "Verbs" : "Ibgda";
}
INSTANTIATE_TEST_SUITE_P(OfTwoDevices, Rails, testing::Values(int{moeTransportVerbs}, int{moeTransportIbgda}), nameOf);

// ---- Where the threads run

// Pretends within a scope that these processors are near the adapter.
class NearProcessors {
 public:
  explicit NearProcessors(const std::string& list) { write(list); }
  ~NearProcessors() { write(before_); }

 private:
  static std::filesystem::path file() { return fakeSys() / "class/infiniband/mlx5_0/device/local_cpulist"; }
  static std::string read() {
    std::string text;
    std::getline(std::ifstream(file()), text);
    return text;
  }
  static void write(const std::string& list) { std::ofstream(file()) << list << "\n"; }

  std::string before_ = read();
};

std::set<int> threads() {
  std::set<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    all.insert(std::stoi(entry.path().filename().string()));
  }
  return all;
}

// The number of new threads that run on this processor alone.
int newThreadsOn(int cpu, const std::set<int>& before) {
  int count = 0;
  for (const int thread : threads()) {
    cpu_set_t allowed;
    if (before.count(thread) != 0 || ::sched_getaffinity(thread, sizeof allowed, &allowed) != 0) continue;
    count += CPU_COUNT(&allowed) == 1 && CPU_ISSET(cpu, &allowed) ? 1 : 0;
  }
  return count;
}

int lastProcessor() {
  cpu_set_t allowed;
  EXPECT_EQ(::sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int last = CPU_SETSIZE - 1;
  while (last > 0 && !CPU_ISSET(last, &allowed)) --last;
  return last;
}

class Pinned : public testing::TestWithParam<int> {
 protected:
  int threadsOfARank() const { return GetParam() == moeTransportVerbs ? 2 : 1; }
};

TEST_P(Pinned, ThreadsRunOnTheProcessorsNearTheAdapter) {
  const int cpu = lastProcessor();
  const NearProcessors near(std::to_string(cpu));
  const std::set<int> before = threads();
  LogLines lines;
  const Members members(2, overRdma(&lines, GetParam()));
  // The threads move themselves.
  const auto end = Clock::now() + 20s;
  while (newThreadsOn(cpu, before) < 2 * threadsOfARank() && Clock::now() < end) std::this_thread::yield();
  EXPECT_EQ(newThreadsOn(cpu, before), 2 * threadsOfARank());
  EXPECT_NE(lines.text().find(" on processors " + std::to_string(cpu)), std::string::npos) << lines.text();
  EXPECT_EQ(lines.text().find("warn: "), std::string::npos) << lines.text();
}

TEST_P(Pinned, WhereTheProcessMayNotRunItWarns) {
  const NearProcessors near("1000-1003");
  LogLines lines;
  Members members(2, overRdma(&lines, GetParam()));
  EXPECT_NE(lines.text().find("warn: moecomm warn [rank 0/2] net: rail 0: "), std::string::npos) << lines.text();
  EXPECT_NE(lines.text().find("far from the adapter, as this process may not run on processors 1000-1003"),
            std::string::npos)
      << lines.text();
  members.run([](Member& me, int) { me.finish(); });
  members.expectNoFailure();
}

INSTANTIATE_TEST_SUITE_P(Threads, Pinned, testing::Values(int{moeTransportVerbs}, int{moeTransportIbgda}), nameOf);

}  // namespace
}  // namespace moe::test
