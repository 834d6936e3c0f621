// The queues of device/queue/mlx5 without an adapter. The oracle compares what is written to them.
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>

#include "device/queue/mlx5/completion_queue.h"
#include "fake_mlx5/cqe_image.h"
#include "fake_mlx5/other_wqes.h"
#include "fake_mlx5/shadow_queue.h"

namespace moe::test {
namespace {

static_assert(mlx5::bigEndian(std::uint32_t{0x01020304}) == 0x04030201);
static_assert(mlx5::bigEndian(std::uint64_t{0x0102030405060708}) == 0x0807060504030201);
static_assert(mlx5::rdmaWrite({}, {}, {}).kSlots == 1 && mlx5::fetchAdd({}, {}, 1, 0, 0).kSlots == 1);
static_assert(mlx5::inlineWrite({}, {}, mlx5::InlineWords<3>{}).kSlots == 1);
static_assert(mlx5::inlineWrite({}, {}, mlx5::InlineWords<7>{}).kSlots == 1);
static_assert(mlx5::inlineWrite({}, {}, mlx5::InlineWords<8>{}).kSlots == 2);
static_assert(mlx5::inlineWrite({}, {}, mlx5::InlineWords<15>{}).kSlots == 2);

bool postEmpty(const mlx5::SendQueue& queue, std::uint32_t slots, const WaitLimit& limit) {
  return mlx5::submit(HostQueueMemory(), queue, slots, limit, [](std::uint64_t) {});
}

TEST(Mlx5Queue, AWqeGoesOnInTheFirstSlotWhenItReachesTheEnd) {
  const ShadowQueue shadow(8);
  const mlx5::SendQueue& queue = shadow.queue();
  EXPECT_EQ(mlx5::segmentAt(queue, 7, 3), queue.segments + 31);
  EXPECT_EQ(mlx5::segmentAt(queue, 7, 4), queue.segments);
  EXPECT_EQ(mlx5::segmentAt(queue, 65536 + 9, 5), queue.segments + 9);
}

TEST(Mlx5Queue, CountersOf16BitsNameTheNextIndexWithThem) {
  for (const std::uint64_t completed : {0ull, 1ull, 0xfffeull, 0xffffull, 0x10000ull, 0x1234567fff0ull}) {
    for (std::uint64_t ahead : {0ull, 1ull, 100ull, 32767ull}) {
      const auto counter = static_cast<std::uint16_t>(completed + ahead);
      EXPECT_EQ(mlx5::indexOfCounter(completed, counter), completed + ahead);
    }
  }
}

TEST(Mlx5Queue, TheRecordAndTheDoorbellCount16Bits) {
  EXPECT_EQ(mlx5::sendRecord(0x12345), mlx5::bigEndian(std::uint32_t{0x2345}));
  EXPECT_EQ(mlx5::doorbellValue(0xabcdef, 0x12345), mlx5::bigEndian(std::uint64_t{0x00234500abcdef00}));
}

TEST(Mlx5Queue, ABatchThatFindsNoSpaceGivesUpAtItsDeadline) {
  const ShadowQueue shadow(4);
  EXPECT_TRUE(postEmpty(shadow.queue(), 4, patience()));
  EXPECT_FALSE(postEmpty(shadow.queue(), 1, patience<5>()));
  EXPECT_EQ(shadow.queue().record[mlx5::kSendRecord], mlx5::sendRecord(4));  // slots that were published in time stay
                                                                             // published
}

TEST(Mlx5Queue, ABatchThatFindsNoSpaceGivesUpWhenToldTo) {
  const ShadowQueue shadow(4);
  EXPECT_TRUE(postEmpty(shadow.queue(), 4, patience()));
  EXPECT_FALSE(postEmpty(shadow.queue(), 1, noPatience()));
}

TEST(Mlx5Queue, ABatchThatFindsNoSpaceFollowsATimeoutThatChanges) {
  const ShadowQueue shadow(4);
  EXPECT_TRUE(postEmpty(shadow.queue(), 4, patience()));
  WaitOrders orders{0, 60'000'000'000};
  std::thread host([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    HostQueueMemory().publish(&orders.timeoutNs, std::uint64_t{1'000'000});
  });
  EXPECT_FALSE(postEmpty(shadow.queue(), 1, {HostQueueMemory().nanoseconds(), &orders}));
  host.join();
}

TEST(Mlx5Queue, SpaceComesBackWithACompletion) {
  const ShadowQueue shadow(4);
  const mlx5::SendQueue& queue = shadow.queue();
  ASSERT_TRUE(mlx5::submit(HostQueueMemory(), queue, 4, patience(), [&](std::uint64_t index) {
    for (std::uint64_t i = index; i < index + 2; ++i) {
      mlx5::writeWqe(HostQueueMemory(), queue, i, mlx5::rdmaWrite(mlx5::headAt(queue, i, 0), {}, {}));
    }
    mlx5::writeWqe(HostQueueMemory(), queue, index + 2,
                   mlx5::inlineWrite(mlx5::headAt(queue, index + 2, mlx5::kSignalled), {}, mlx5::InlineWords<12>{}));
  }));
  mlx5::Completion done{};
  done.counter = 2;  // covers two slots
  mlx5::retire(HostQueueMemory(), queue, done);
  EXPECT_EQ(*queue.completed, 4u);
  EXPECT_TRUE(postEmpty(queue, 4, patience()));
}

TEST(Mlx5Queue, AGapInTheOrderStopsThoseBehindIt) {
  const ShadowQueue shadow(8);
  std::uint64_t index;
  ASSERT_TRUE(mlx5::reserve(HostQueueMemory(), shadow.queue(), 1, patience(), &index));  // reserved but never written
  EXPECT_FALSE(postEmpty(shadow.queue(), 1, patience<5>()));
  EXPECT_EQ(shadow.queue().record[mlx5::kSendRecord], 0u);
}

TEST(Mlx5Queue, ABatchThatIsPublishedIsRungByTheNextPosterToo) {
  const ShadowQueue shadow(8);
  const mlx5::SendQueue& queue = shadow.queue();
  std::uint64_t index;
  ASSERT_TRUE(mlx5::reserve(HostQueueMemory(), queue, 2, patience(), &index));
  ASSERT_TRUE(mlx5::publishSlots(HostQueueMemory(), queue, index, 2, patience()));
  EXPECT_EQ(*queue.doorbell, 0u);
  EXPECT_TRUE(postEmpty(queue, 1, patience()));
  EXPECT_EQ(*queue.doorbell, mlx5::doorbellValue(queue.queuePair, 3));
  *queue.doorbell = 0;
  EXPECT_TRUE(mlx5::ringUpTo(HostQueueMemory(), queue, 2, patience()));
  EXPECT_EQ(*queue.doorbell, 0u);  // the adapter knew of them already
}

TEST(Mlx5Queue, WhoWaitsForSpaceRingsWhatNobodyRang) {
  const ShadowQueue shadow(4);
  const mlx5::SendQueue& queue = shadow.queue();
  std::uint64_t index;
  ASSERT_TRUE(mlx5::reserve(HostQueueMemory(), queue, 4, patience(), &index));
  ASSERT_TRUE(mlx5::publishSlots(HostQueueMemory(), queue, index, 4, patience()));
  EXPECT_EQ(*queue.doorbell, 0u);
  EXPECT_FALSE(mlx5::reserve(HostQueueMemory(), queue, 1, patience<5>(), &index));
  EXPECT_EQ(*queue.doorbell, mlx5::doorbellValue(queue.queuePair, 4));
}

TEST(Mlx5Queue, CompletionsAreTakenOnceEachThroughManyRounds) {
  alignas(64) mlx5::Cqe entries[4];
  std::memset(entries, 0xf0, sizeof(entries));  // the driver's initial state
  std::uint32_t record[2] = {};
  mlx5::CompletionQueue queue = {entries, 4, record, 0};
  mlx5::Completion seen{};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_FALSE(mlx5::poll(HostQueueMemory(), queue, &seen)) << i;
    mlx5::Completion written{};
    written.counter = static_cast<std::uint16_t>(i * 77);
    writeCqe(entries, 4, i, written);
    ASSERT_TRUE(mlx5::poll(HostQueueMemory(), queue, &seen)) << i;
    ASSERT_EQ(seen.counter, written.counter);
    ASSERT_EQ(record[0], mlx5::bigEndian(static_cast<std::uint32_t>(i + 1)));
  }
}

TEST(Mlx5Queue, EverySyndromeHasATextOfItsOwn) {
  std::set<std::string> texts;
  for (int syndrome = 0; syndrome < 256; ++syndrome) {
    texts.insert(mlx5::syndromeText(static_cast<mlx5::Syndrome>(syndrome)));
  }
  EXPECT_EQ(texts.size(), 15u);  // 13 named, none, and one for all unnamed
}

}  // namespace
}  // namespace moe::test
