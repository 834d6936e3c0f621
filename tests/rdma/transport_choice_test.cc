// Which transport leads to other domains, and which thread or step rings the adapter. If a backend cannot share the
// pages that the better way needs, ranks take the next way. Ranks are in one process, over the adapter in software of
// tests/fake_mlx5.
#include "rdma/rdma_world.h"
#include "transport/transports.h"
#include "unit/forwarding_backend.h"

namespace moe::test {
namespace {

constexpr std::uint64_t kWord = 0, kOutgoing = 4096, kIncoming = 65536;
constexpr std::size_t kRowBytes = 768;
constexpr int kRows = 8;

// The host backend, but its steps cannot reach pages of the refused kinds, such as a GPU's driver may refuse to map.
class NarrowBackend final : public ForwardingBackend {
 public:
  explicit NarrowBackend(std::vector<HostPages> refused) : refused_(std::move(refused)) {}

  Memory shareWithSteps(void* begin, std::size_t bytes, HostPages kind) override {
    if (std::find(refused_.begin(), refused_.end(), kind) == refused_.end()) {
      return ForwardingBackend::shareWithSteps(begin, bytes, kind);
    }
    const char* what = kind == HostPages::memory ? "queue" : "registers";
    throw Error(moeUnsupported, std::string("this GPU cannot reach an adapter's ") + what);
  }

 private:
  std::vector<HostPages> refused_;
};

// Options of a rank that chooses as with a GPU. All ranks are alike.
MemberOptions choosing(std::vector<HostPages> refused, LogLines* lines) {
  MemberOptions options = overRdma(lines);
  options.makeBackend = [refused] { return std::make_unique<NarrowBackend>(refused); };
  options.make = [](const RemoteSetup& setup, const TcpOptions&) {
    return makeFirstPossible(setup, fastestFirst(moeBackendCuda), [&](const std::string& mine) {
      return std::vector<std::string>(static_cast<std::size_t>(setup.nranks), mine);
    });
  };
  return options;
}

// Exchanges rows and the word behind them in both directions, and compares every byte.
void exchange(Members& members, std::uint32_t rounds = 20) {
  members.run([&](Member& me, int rank) {
    const int other = 1 - rank;
    for (std::uint32_t round = 1; round <= rounds; ++round) {
      for (std::uint32_t row = 0; row < kRows; ++row) {
        const std::uint64_t at = row * kRowBytes;
        fillRow(me.at(kOutgoing + at), kRowBytes, round * 100 + row);
        ASSERT_TRUE(me.put(other, kIncoming + at, kOutgoing + at, kRowBytes));
      }
      ASSERT_TRUE(me.putWord(other, kWord, round));
      me.await(kWord, round);
      for (std::uint32_t row = 0; row < kRows; ++row) {
        EXPECT_TRUE(rowIs(me.at(kIncoming + row * kRowBytes), kRowBytes, round * 100 + row)) << "round " << round;
      }
      ASSERT_TRUE(me.putWord(other, kWord + 8, round));
      me.await(kWord + 8, round);  // the peer has read what the next round overwrites
    }
  });
}

void expectSaid(LogLines& lines, const std::string& what) {
  EXPECT_NE(lines.text().find(what), std::string::npos) << lines.text();
}
void expectNoWarning(LogLines& lines) {
  EXPECT_EQ(lines.text().find("warn: "), std::string::npos) << lines.text();
}

void expectWorks(std::vector<HostPages> refused, int kind, LogLines* lines) {
  Members members(2, choosing(std::move(refused), lines));
  EXPECT_EQ(members[0].transport().kind(), kind);
  EXPECT_EQ(members[1].transport().kind(), kind);
  exchange(members);
  members.run([](Member& me, int) { me.finish(); });
  members.expectNoFailure();
  EXPECT_EQ(RdmaFolder::ofProcess().violations(), "");
}

TEST(TransportChoice, TriesTheFastestFirst) {
  EXPECT_EQ(fastestFirst(moeBackendCuda),
            (std::vector{int{moeTransportIbgda}, int{moeTransportVerbs}, int{moeTransportTcp}}));
  EXPECT_EQ(fastestFirst(moeBackendHost), (std::vector{int{moeTransportVerbs}, int{moeTransportTcp}}));
}

TEST(TransportChoice, StepsRingIfTheyReachTheRegisters) {
  LogLines lines;
  expectWorks({}, moeTransportIbgda, &lines);
  expectSaid(lines, "; steps ring");
  expectNoWarning(lines);
}

TEST(TransportChoice, AThreadRingsForStepsThatDoNotReachTheRegisters) {
  LogLines lines;
  expectWorks({HostPages::registers}, moeTransportIbgda, &lines);
  expectSaid(lines, "a thread rings for steps, because they cannot: this GPU cannot reach an adapter's registers");
  expectSaid(lines, "warn: moecomm warn [rank 1/2] net: rail 0: mlx5_0");
}

TEST(TransportChoice, AThreadPostsForStepsThatDoNotReachTheQueues) {
  LogLines lines;
  expectWorks({HostPages::memory}, moeTransportVerbs, &lines);
  // The rank that cannot use IBGDA logs a warning. The others only report the fact.
  expectSaid(lines,
             "warn: moecomm warn [rank 0/2] init: IBGDA is not used between domains: rank 0: this GPU "
             "cannot reach an adapter's queue");
  expectSaid(lines, "info: moecomm info [rank 1/2] init: IBGDA is not used between domains: rank 0: ");
}

TEST(TransportChoice, WhoIsToRingByItselfIsRefusedIfItCannot) {
  MemberOptions options = overRdma(nullptr, moeTransportIbgda);
  options.makeBackend = [] { return std::make_unique<NarrowBackend>(std::vector{HostPages::registers}); };
  options.rdma.doorbell = static_cast<std::int32_t>(topology::Doorbell::steps);
  try {
    const Member member(0, 2, options);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.result(), moeUnsupported);
    EXPECT_STREQ(error.what(), "this GPU cannot reach an adapter's registers");
  }
}

// One rank that cannot use a transport is enough, and all ranks name it.
TEST(TransportChoice, AllTakeWhatEveryRankHas) {
  LogLines lines;
  MemberOptions options = overRdma(&lines);
  options.make = [](const RemoteSetup& setup, const TcpOptions&) {
    return makeFirstPossible(setup, {moeTransportIbgda, moeTransportVerbs, moeTransportTcp},
                             [n = 0](const std::string& mine) mutable {
                               EXPECT_EQ(mine, "");
                               return std::vector<std::string>{"", n++ == 0 ? "its adapter is too old" : "no adapter"};
                             });
  };
  const Member member(0, 2, options);
  EXPECT_EQ(lines.text(),
            "info: moecomm info [rank 0/2] init: IBGDA is not used between domains: rank 1: its adapter is too old\n"
            "info: moecomm info [rank 0/2] init: verbs is not used between domains: rank 1: no adapter\n");
}

// The parts of the choice that a program sees.
TEST(TransportChoice, PeerInfoNamesWhatAutoHasFound) {
  RdmaFolder::ofProcess();
  LogLines lines;
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess);
  expectAllWell(inThreads(2, [&](int rank) {
    const Log::Options log = lines.options();
    moeConfig_t config = MOE_CONFIG_INITIALIZER;
    config.backend = moeBackendHost;
    config.domainSize = 1;
    config.tokensMax = config.llTokensMax = config.rowBytesMax = 16;
    config.topkMax = config.expertsMax = 2;
    config.log = log.sink;
    config.logUser = log.user;
    config.logLevel = log.level;
    moeComm_t comm = nullptr;
    ASSERT_EQ(moeCommInit(&comm, 2, rank, &id, &config), moeSuccess) << moeGetLastError(nullptr);
    moePeerInfo_t peer = MOE_PEER_INFO_INITIALIZER;
    EXPECT_EQ(moeCommGetPeerInfo(comm, 1 - rank, &peer), moeSuccess);
    EXPECT_EQ(peer.transport, moeTransportVerbs);
    EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
  }));
  expectSaid(lines, "info: moecomm info [rank 1/2] init: 2 domains of 1 ranks, joined by verbs");
}

TEST(TransportChoice, WithoutAnAdapterItIsTcpAndNoWarning) {
  LogLines lines;
  MemberOptions options = choosing({}, &lines);
  options.rdma.sys = "/nowhere";
  Members members(2, options);
  EXPECT_EQ(members[0].transport().kind(), moeTransportTcp);
  exchange(members, 2);
  expectSaid(lines,
             "info: moecomm info [rank 0/2] init: verbs is not used between domains: rank 0: RDMA: this machine has "
             "no RDMA adapter");
  expectNoWarning(lines);
}

}  // namespace
}  // namespace moe::test
