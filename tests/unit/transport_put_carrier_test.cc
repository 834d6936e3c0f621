// The thread that carries puts from a ring.
#include "transport/tcp/put_carrier.h"
#include "transport/transport_world.h"
#include "unit/forwarding_backend.h"

namespace moe::test {
namespace {

// Refuses, fails or keeps puts as the test says.
class Sink final : public PutSink {
 public:
  bool carry(const Put& put) override {
    if (refuse.fetch_sub(1) > 0) return false;
    refuse = 0;
    if (noMemory) throw std::bad_alloc();
    if (broken) throw Error(moeCudaError, "the adapter is gone");
    got.push_back(put);
    return true;
  }
  bool progress() override {
    ++rounds;
    return false;
  }
  // Longer than any test, so a thread that is not woken does not run.
  std::chrono::microseconds restMost() const override { return std::chrono::minutes(10); }

  std::atomic<int> refuse = 0;
  std::atomic<bool> broken = false, noMemory = false;
  std::atomic<int> rounds = 0;
  std::vector<Put> got;
};

class PutCarrierTest : public testing::Test {
 protected:
  bool post(const Put& put, std::chrono::milliseconds patience = 20s) {
    const HostQueueMemory memory;
    const WaitOrders orders{0, static_cast<std::uint64_t>(patience.count()) * 1000000};
    const bool posted = moe::post(memory, carrier.ring(), put, {memory.nanoseconds(), &orders});
    carrier.wake();
    return posted;
  }
  bool waitTaken(std::chrono::milliseconds patience = 20s) {
    return carrier.waitTaken(Deadline::after(patience), [&] { return failed.load(); });
  }

  std::unique_ptr<Backend> backend = makeHostBackend();
  Sink sink;
  std::atomic<bool> failed = false;
  Outcome failure;
  PutCarrier carrier{*backend, 8, sink, [this](moeResult_t result, const std::string& sentence) {
                       failure = {result, sentence};
                       failed = true;
                     }};
};

TEST_F(PutCarrierTest, TakesEachPutOnceAndThoseOfAPosterInOrder) {
  carrier.start();
  constexpr int kPosters = 4;
  constexpr std::uint64_t kPuts = 2000;
  expectAllWell(inThreads(kPosters, [&](int poster) {
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      if (!post(putBytes(poster, i, i * 3, 4))) throw Error(moeTimeout, "the ring stayed full");
    }
  }));
  ASSERT_TRUE(waitTaken());
  carrier.stop();
  ASSERT_EQ(sink.got.size(), kPosters * kPuts);
  std::uint64_t next[kPosters] = {};
  for (const Put& put : sink.got) {
    ASSERT_EQ(put.target, next[put.to]++);
    ASSERT_EQ(put.source, put.target * 3);
  }
}

TEST(PutCarrier, DropsPutsToLostRanks) {
  const std::unique_ptr<Backend> backend = makeHostBackend();
  Sink sink;
  PutCarrier carrier(*backend, 8, sink, [](moeResult_t, const std::string&) {}, {1, 3});
  const HostQueueMemory memory;
  const WaitOrders orders{0, 20'000'000'000};
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Put put = putBytes(static_cast<int>(i % 4), i, 0, 4);
    ASSERT_TRUE(post(memory, carrier.ring(), put, {memory.nanoseconds(), &orders}));
    carrier.help();
  }
  EXPECT_FALSE(carrier.help().left);
  ASSERT_EQ(sink.got.size(), 50U);
  for (const Put& put : sink.got) EXPECT_EQ(put.to % 2, 0);
}

TEST_F(PutCarrierTest, OffersAgainWhatTheSinkHasNoRoomFor) {
  sink.refuse = 5;
  carrier.start();
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(post(putBytes(0, i, 0, 4)));
  ASSERT_TRUE(waitTaken());
  carrier.stop();
  ASSERT_EQ(sink.got.size(), 20U);
  for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(sink.got[i].target, i);
}

TEST_F(PutCarrierTest, PostersGiveUpOnAFullRing) {
  sink.refuse = 1 << 30;
  carrier.start();
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(post(putBytes(0, i, 0, 4)));
  EXPECT_FALSE(post(putBytes(0, 8, 0, 4), 50ms));
  EXPECT_FALSE(waitTaken(50ms));
}

TEST_F(PutCarrierTest, ReportsWhatTheSinkThrows) {
  sink.broken = true;
  carrier.start();
  ASSERT_TRUE(post(putBytes(0, 0, 0, 4)));
  EXPECT_FALSE(waitTaken());
  carrier.stop();
  EXPECT_EQ(failure.result, moeCudaError);
  EXPECT_EQ(failure.sentence, "the adapter is gone");
}

TEST_F(PutCarrierTest, ReportsThatMemoryRanOut) {
  sink.noMemory = true;
  carrier.start();
  ASSERT_TRUE(post(putBytes(0, 0, 0, 4)));
  EXPECT_FALSE(waitTaken());
  carrier.stop();
  EXPECT_EQ(failure.result, moeSystemError);
  EXPECT_EQ(failure.sentence, "out of host memory");
}

TEST_F(PutCarrierTest, AThreadWithoutWorkSleepsUntilItIsWoken) {
  carrier.start();
  for (std::uint64_t i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(20ms);
    sink.rounds = 0;
    std::this_thread::sleep_for(100ms);
    EXPECT_LT(sink.rounds, 5);
    ASSERT_TRUE(post(putBytes(0, i, 0, 4)));
    ASSERT_TRUE(waitTaken());
  }
}

TEST_F(PutCarrierTest, AHelperDoesTheThreadsWork) {
  for (std::uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(post(putBytes(0, i, 0, 4)));
  PutCarrier::Help help = carrier.help();  // no thread was started
  EXPECT_TRUE(help.moved);
  EXPECT_FALSE(help.left);
  ASSERT_EQ(sink.got.size(), 8U);
  EXPECT_EQ(sink.got[7].target, 7U);
  EXPECT_FALSE(carrier.help().moved);

  sink.refuse = 1 << 30;
  ASSERT_TRUE(post(putBytes(0, 8, 0, 4)));
  help = carrier.help();
  EXPECT_FALSE(help.moved);
  EXPECT_TRUE(help.left);
}

// The last put of each poster is carried by its own help, by another poster's help, or by the thread. None is left.
TEST_F(PutCarrierTest, HelpersAndTheThreadMissNothing) {
  carrier.start();
  constexpr int kPosters = 3;
  constexpr std::uint64_t kPuts = 2000;
  expectAllWell(inThreads(kPosters, [&](int poster) {
    const HostQueueMemory memory;
    const WaitOrders orders{0, 20'000'000'000};
    for (std::uint64_t i = 0; i < kPuts; ++i) {
      const WaitLimit limit{memory.nanoseconds(), &orders};
      if (!moe::post(memory, carrier.ring(), putBytes(poster, i, 0, 4), limit)) {
        throw Error(moeTimeout, "the ring stayed full");
      }
      if (carrier.help().left) carrier.wake();
    }
  }));
  const auto end = Clock::now() + 20s;
  while (HostQueueMemory().load(carrier.ring().taken) < kPosters * kPuts && Clock::now() < end) {
    std::this_thread::yield();
  }
  carrier.stop();
  ASSERT_EQ(sink.got.size(), kPosters * kPuts);
  std::uint64_t next[kPosters] = {};
  for (const Put& put : sink.got) ASSERT_EQ(put.target, next[put.to]++);
}

TEST_F(PutCarrierTest, AHelperReportsWhatTheSinkThrows) {
  sink.broken = true;
  ASSERT_TRUE(post(putBytes(0, 0, 0, 4)));
  EXPECT_FALSE(carrier.help().moved);
  EXPECT_EQ(failure.result, moeCudaError);
  EXPECT_EQ(failure.sentence, "the adapter is gone");
  EXPECT_FALSE(carrier.help().left) << "nobody carries any more";
}

// The kind of backend whose steps cannot wake a thread, as on a GPU.
class SilentBackend final : public ForwardingBackend {
 public:
  int kind() const noexcept override { return moeBackendCuda; }
};

TEST(PutCarrier, WhereNobodyCanWakeItTheThreadLooksNowAndThen) {
  SilentBackend backend;
  Sink sink;
  PutCarrier carrier(backend, 8, sink, [](moeResult_t, const std::string&) {});
  carrier.start();
  std::this_thread::sleep_for(50ms);
  sink.rounds = 0;
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(sink.rounds, 1000) << "longer and longer";
  const HostQueueMemory memory;
  const WaitOrders orders{0, 1'000'000'000};
  ASSERT_TRUE(moe::post(memory, carrier.ring(), putBytes(0, 0, 0, 4), {memory.nanoseconds(), &orders}));
  EXPECT_TRUE(carrier.waitTaken(Deadline::after(20s), [] { return false; }));
}

TEST_F(PutCarrierTest, ARingThatIsNoPowerOfTwoIsRefused) {
  EXPECT_THROW(PutCarrier(*backend, 12, sink, {}), Error);
}

}  // namespace
}  // namespace moe::test
