// The queues of device/queue/mlx5 at work between two queue pairs: submit posts, the software adapter executes.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "fake_mlx5/endpoint.h"
#include "fake_mlx5/nervous_memory.h"
#include "fake_mlx5/other_wqes.h"

namespace moe::test {
namespace {

constexpr unsigned kAllAccess = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic;

void expectNoViolation(const SoftAdapter& adapter) {
  EXPECT_TRUE(adapter.violations().empty())
      << adapter.violations().size() << " violations; the first: " << adapter.violations().front();
}

// The addresses and keys that one side of a connection offers to the other.
struct Area {
  std::array<std::uint64_t, 448> row{};
  std::array<std::uint32_t, 12> header{};
  std::uint64_t flag = 0;
};

// Sends rows to a peer and expects rows from it, one at a time.
struct Side {
  Endpoint& endpoint;
  Area own, arrived;
  std::uint32_t key = 0;

  mlx5::LocalRange rowRange() const { return {addressOf(&own.row), key, sizeof(own.row)}; }
};

// Posts a header of two slots in every other round, so that WQEs wrap around the end of the ring. Then the row, then
// the flag.
bool sendRow(Side& from, const Side& to, std::uint64_t round) {
  const HostQueueMemory memory;
  const mlx5::SendQueue& queue = from.endpoint.queue();
  const bool hasHeader = round % 2 == 0;
  from.own.row.fill(round);
  return mlx5::submit(memory, queue, hasHeader ? 4 : 2, patience(), [&](std::uint64_t index) {
    if (hasHeader) {
      mlx5::InlineWords<12> header;
      for (std::uint32_t& word : header.word) word = static_cast<std::uint32_t>(round);
      mlx5::writeWqe(memory, queue, index,
                     mlx5::inlineWrite(mlx5::headAt(queue, index, 0), {addressOf(&to.arrived.header), to.key}, header));
      index += 2;
    }
    mlx5::writeWqe(
        memory, queue, index,
        mlx5::rdmaWrite(mlx5::headAt(queue, index, 0), {addressOf(&to.arrived.row), to.key}, from.rowRange()));
    ++index;
    mlx5::writeWqe(memory, queue, index,
                   mlx5::inlineWrite(mlx5::headAt(queue, index, mlx5::kSignalled),
                                     {addressOf(&to.arrived.flag), to.key}, mlx5::inlineFlag(round)));
  });
}

// Returns the number of wrong words, or of all words if the row does not arrive.
std::size_t receiveRow(const Side& side, std::uint64_t round) {
  const HostQueueMemory memory;
  const Area& area = side.arrived;
  if (!waitUntil(memory, patience(), [&] { return memory.load(&area.flag) == round; })) return area.row.size();
  std::size_t wrong = 0;
  for (const std::uint64_t word : area.row) wrong += word != round;
  if (round % 2 == 0) {
    for (const std::uint32_t word : area.header) wrong += word != static_cast<std::uint32_t>(round);
  }
  return wrong;
}

// The indices pass 2^16 during the test.
TEST(SoftAdapter, RowsArriveBeforeTheirFlagsThroughASmallRing) {
  constexpr std::uint64_t kRounds = 600, kBegin = 65536 - 901;
  SoftAdapter adapter(2);
  Endpoint first(adapter, 0x11, 8, 16, kBegin), second(adapter, 0x12, 8, 16, kBegin);
  adapter.connect(0x11, 0x12);
  Side a{first, {}, {}}, b{second, {}, {}};
  a.key = adapter.registerMemory(&a, sizeof(a), kAllAccess);
  b.key = adapter.registerMemory(&b, sizeof(b), kAllAccess);
  std::size_t wrongAtA = 0, wrongAtB = 0;
  {
    const Repeater engine([&] { adapter.step(); }), owner([&] { first.drain(), second.drain(); });
    std::thread other([&] {
      for (std::uint64_t round = 1; round <= kRounds && wrongAtB == 0; ++round) {
        wrongAtB += receiveRow(b, round);
        if (!sendRow(b, a, round)) break;
      }
    });
    for (std::uint64_t round = 1; round <= kRounds && wrongAtA == 0; ++round) {
      if (!sendRow(a, b, round)) break;
      wrongAtA += receiveRow(a, round);
    }
    other.join();
  }
  first.drain(), second.drain();
  EXPECT_EQ(wrongAtA + wrongAtB, 0u);
  EXPECT_EQ(*first.queue().completed, kBegin + kRounds * 3);
  EXPECT_EQ(*second.queue().completed, kBegin + kRounds * 3);
  expectNoViolation(adapter);
}

// Posts batches of an inline write of two slots and an addition, `batch` each time.
struct Adder {
  const mlx5::SendQueue& queue;
  mlx5::RemoteAddress sum, words;  // destinations
  std::uint64_t before;            // address for the value before the addition
  std::uint32_t beforeKey;

  bool post(std::uint32_t batch) const {
    const NervousMemory memory;
    return mlx5::submit(memory, queue, 3, patience(), [&](std::uint64_t index) {
      const mlx5::InlineWords<8> data = {{batch, batch, batch, batch, batch, batch, batch, batch}};
      mlx5::writeWqe(memory, queue, index, mlx5::inlineWrite(mlx5::headAt(queue, index, 0), words, data));
      index += 2;
      mlx5::writeWqe(memory, queue, index,
                     mlx5::fetchAdd(mlx5::headAt(queue, index, mlx5::kSignalled), sum, batch, before, beforeKey));
    });
  }
  bool postAll(std::uint64_t batches) const {
    std::uint32_t batch = 1;
    while (batch <= batches && post(batch)) ++batch;
    return batch > batches;
  }
};

// More posters than slots in the ring.
TEST(SoftAdapter, PostersThatShareAQueueLoseNothing) {
  constexpr std::uint64_t kPosters = 4, kBatches = 300, kBegin = 65536 - 1000, kEnd = kBegin + 3 * kPosters * kBatches;
  SoftAdapter adapter(2);
  Endpoint sender(adapter, 0x21, 8, 16, kBegin), receiver(adapter, 0x22, 8);
  adapter.connect(0x21, 0x22);
  std::uint64_t sum = 0, before[kPosters] = {};
  std::array<std::uint32_t, 8> words[kPosters] = {};
  const mlx5::RemoteAddress sumThere = {addressOf(&sum), adapter.registerMemory(&sum, sizeof(sum), kRemoteAtomic)};
  const std::uint32_t wordsKey = adapter.registerMemory(words, sizeof(words), kRemoteWrite),
                      beforeKey = adapter.registerMemory(before, sizeof(before), kLocalWrite);
  std::atomic<int> finished{0};
  {
    const Repeater engine([&] { adapter.step(); }), owner([&] { sender.drain(); });
    std::vector<std::thread> posters;
    for (std::size_t i = 0; i < kPosters; ++i) {
      const mlx5::RemoteAddress wordsThere = {addressOf(&words[i]), wordsKey};
      const Adder adder = {sender.queue(), sumThere, wordsThere, addressOf(&before[i]), beforeKey};
      posters.emplace_back([&finished, adder] { finished += adder.postAll(kBatches); });
    }
    for (std::thread& poster : posters) poster.join();
    const HostQueueMemory memory;
    waitUntil(memory, patience(), [&] { return memory.load(sender.queue().completed) == kEnd; });
  }
  EXPECT_EQ(finished, 4);
  EXPECT_EQ(*sender.queue().completed, kEnd);
  EXPECT_EQ(sum, kPosters * (kBatches * (kBatches + 1) / 2));
  for (const auto& each : words) {
    for (const std::uint32_t word : each) EXPECT_EQ(word, kBatches);
  }
  expectNoViolation(adapter);
}

// ---- One operation at a time, without threads

class OneOperation : public ::testing::Test {
 protected:
  OneOperation() { adapter.connect(0x31, 0x32); }

  // Posts what make(head) returns, and steps the adapter until the operation completes.
  template <class Make>
  mlx5::Completion post(Make make) {
    const mlx5::SendQueue& queue = sender.queue();
    const bool posted = mlx5::submit(HostQueueMemory(), queue, 1, patience(), [&](std::uint64_t index) {
      mlx5::writeWqe(HostQueueMemory(), queue, index, make(mlx5::headAt(queue, index, mlx5::kSignalled)));
    });
    EXPECT_TRUE(posted);
    adapter.step();
    mlx5::Completion completion{};
    EXPECT_TRUE(sender.poll(&completion));
    if (!completion.failed()) mlx5::retire(HostQueueMemory(), queue, completion);
    return completion;
  }

  SoftAdapter adapter;
  Endpoint sender{adapter, 0x31, 4}, receiver{adapter, 0x32, 4};
  std::array<std::uint64_t, 4> here{1, 2, 3, 4}, there{5, 6, 7, 8};
  std::uint32_t hereKey = adapter.registerMemory(&here, sizeof(here), kLocalWrite),
                thereKey = adapter.registerMemory(&there, sizeof(there), kAllAccess);
  mlx5::RemoteAddress remote{addressOf(&there), thereKey};
  mlx5::LocalRange local{addressOf(&here), hereKey, sizeof(here)};
};

TEST_F(OneOperation, ReadsFetch) {
  post([&](const auto& head) { return mlx5::rdmaRead(head, remote, local); });
  EXPECT_EQ(here, there);
  EXPECT_EQ(*sender.queue().completed, 1u);
}

TEST_F(OneOperation, SwapsHappenIfTheValueIsTheExpectedOne) {
  post([&](const auto& head) { return mlx5::compareSwap(head, remote, 4, 99, addressOf(&here), hereKey); });
  EXPECT_EQ(there[0], 5u);
  post([&](const auto& head) { return mlx5::compareSwap(head, remote, 5, 99, addressOf(&here), hereKey); });
  EXPECT_EQ(there[0], 99u);
  EXPECT_EQ(here[0], 5u);
}

TEST_F(OneOperation, AWriteWithImmediateCompletesAtTheReceiverToo) {
  receiver.queue().record[0] = mlx5::bigEndian(std::uint32_t{1});  // the receiver has posted one receive
  post([&](const auto& head) { return mlx5::rdmaWriteImm(head, remote, local, 0x12345678); });
  mlx5::Completion arrived{};
  ASSERT_TRUE(receiver.poll(&arrived));
  EXPECT_EQ(arrived.opcode, mlx5::CqeOpcode::writeImmReceived);
  EXPECT_EQ(arrived.immediate, 0x12345678u);
  EXPECT_EQ(arrived.bytes, sizeof(here));
  EXPECT_EQ(there, here);

  const mlx5::Completion second = post([&](const auto& head) { return mlx5::rdmaWriteImm(head, remote, local, 1); });
  EXPECT_EQ(second.syndrome, mlx5::Syndrome::receiverNotReady);
}

TEST_F(OneOperation, AKeyThatDoesNotCoverTheMemoryFailsAndFlushesTheRest) {
  const auto write = [&](const auto& head) { return mlx5::rdmaWrite(head, remote, local); };
  ++local.bytes;
  EXPECT_EQ(post(write).syndrome, mlx5::Syndrome::localProtection);
  --local.bytes;
  const mlx5::Completion flushed = post(write);
  EXPECT_TRUE(flushed.failed());
  EXPECT_EQ(flushed.syndrome, mlx5::Syndrome::flushed);
  EXPECT_EQ(flushed.vendorSyndrome, 0x99);
  EXPECT_EQ(there[0], 5u);
}

TEST_F(OneOperation, AnOperationThatTheRemoteKeyDoesNotAllowFails) {
  remote = {addressOf(&here), hereKey};
  EXPECT_EQ(post([&](const auto& head) { return mlx5::rdmaWrite(head, remote, local); }).syndrome,
            mlx5::Syndrome::remoteAccess);
}

TEST_F(OneOperation, ALostDoorbellIsMadeUpForByTheNext) {
  const mlx5::SendQueue& queue = sender.queue();
  const auto flag = [&](std::uint64_t value) {
    return mlx5::submit(HostQueueMemory(), queue, 1, patience(), [&](std::uint64_t index) {
      mlx5::writeWqe(HostQueueMemory(), queue, index,
                     mlx5::inlineWrite(mlx5::headAt(queue, index, mlx5::kSignalled), remote, mlx5::inlineFlag(value)));
    });
  };
  adapter.ignoreNextDoorbell();
  ASSERT_TRUE(flag(100));
  adapter.step();
  EXPECT_EQ(there[0], 5u);
  ASSERT_TRUE(flag(101));
  adapter.step(), adapter.step();
  EXPECT_EQ(there[0], 101u);
  EXPECT_TRUE(sender.drain());
  EXPECT_EQ(*queue.completed, 2u);
  expectNoViolation(adapter);
}

}  // namespace
}  // namespace moe::test
