// Puts as RDMA writes (device/queue/mlx5/put_queue.h), executed by the software adapter between windows of this
// process.
#include "device/queue/mlx5/put_queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

#include "fake_mlx5/endpoint.h"
#include "fake_mlx5/nervous_memory.h"

namespace moe::test {
namespace {

constexpr std::size_t kWindowBytes = 1 << 16;
constexpr std::uint32_t kQueuePairs = 0x50;

int toRank(const Put& put) {
  return put.to;
}

// Counts how often a queue tells the adapter something.
class CountingMemory : public HostQueueMemory {
 public:
  void ring(std::uint64_t* to, std::uint64_t value) const {
    ++*rings;
    HostQueueMemory::ring(to, value);
  }
  std::shared_ptr<int> rings = std::make_shared<int>(0);
};

struct Shape {
  int ranks = 2;
  std::uint32_t slots = 8;
  std::uint64_t begin = 0;  // slots used before the test
  std::uint32_t messageBytes = 1u << 30;
};

// Ranks with one window each and a connection between any two.
class Ranks {
 public:
  explicit Ranks(const Shape& shape) : shape_(shape), adapter_(2) {
    for (int rank = 0; rank < shape.ranks; ++rank) {
      windows_.push_back(std::make_unique<Window>());
      const Window& window = *windows_.back();
      local_.push_back(adapter_.registerMemory(&window, sizeof(window), 0));
      remote_.push_back(adapter_.registerMemory(&window, sizeof(window), kRemoteWrite));
    }
    for (int from = 0; from < shape.ranks; ++from) {
      for (int to = 0; to < shape.ranks; ++to) addConnection(from, to);
    }
  }

  const mlx5::PutQueue* queuesOf(int rank) const {
    return queues_.data() + static_cast<std::size_t>(rank) * static_cast<std::size_t>(shape_.ranks);
  }
  template <class T>
  T* at(int rank, std::uint64_t offset) {
    return reinterpret_cast<T*>(windows_[static_cast<std::size_t>(rank)]->bytes + offset);
  }
  template <class Memory = HostQueueMemory>
  bool post(int rank, const std::vector<Put>& puts, const WaitLimit& limit = patience(), const Memory& memory = {}) {
    return mlx5::postPuts(
        memory, queuesOf(rank), toRank, static_cast<int>(puts.size()),
        [&](int i) { return puts[static_cast<std::size_t>(i)]; }, limit, &late);
  }
  // Plays the adapter and the owner of the completions.
  void step() { adapter_.step(); }
  void drain() {
    for (const auto& end : ends_) end->drain();
  }
  // Slots that one rank has used for puts to another.
  std::uint64_t slotsUsed(int from, int to) const { return queuesOf(from)[to].send.counters->posted - shape_.begin; }
  void expectDone() {
    for (int i = 0; i < 100000 && !done(); ++i) step(), drain();
    EXPECT_TRUE(done());
    EXPECT_TRUE(adapter_.violations().empty()) << adapter_.violations().front();
  }

  int late = -1;

 private:
  struct Window {
    alignas(64) std::uint8_t bytes[kWindowBytes] = {};
  };

  void addConnection(int from, int to) {
    const std::uint32_t number = kQueuePairs + static_cast<std::uint32_t>(queues_.size());
    ends_.push_back(std::make_unique<Endpoint>(adapter_, number, shape_.slots, 16, shape_.begin));
    const auto local = static_cast<std::size_t>(from), remote = static_cast<std::size_t>(to);
    queues_.push_back({ends_.back()->queue(), addressOf(windows_[local]->bytes), addressOf(windows_[remote]->bytes),
                       local_[local], remote_[remote], remote_[remote], shape_.messageBytes});
  }
  bool done() const {
    return std::all_of(queues_.begin(), queues_.end(), [](const mlx5::PutQueue& queue) {
      return *queue.send.completed == queue.send.counters->reserved;
    });
  }

  Shape shape_;
  SoftAdapter adapter_;
  std::vector<std::unique_ptr<Window>> windows_;
  std::vector<std::uint32_t> local_, remote_;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::vector<mlx5::PutQueue> queues_;
};

// Rows to send stand at the start of the window, rows received 16384 bytes later, and words at kWords.
constexpr std::uint32_t kRowBytes = 128;
constexpr std::uint64_t kWords = 32768;

std::vector<Put> rowsAndWord(int to, int rows, std::uint64_t word) {
  std::vector<Put> puts;
  for (int row = 0; row < rows; ++row) {
    const auto offset = static_cast<std::uint64_t>(row) * kRowBytes;
    puts.push_back(putBytes(to, offset + 16384, offset, kRowBytes));
  }
  puts.push_back(putWord(to, kWords, word));
  return puts;
}

bool sendRound(Ranks& ranks, int rank, std::uint64_t round, int rows) {
  std::fill_n(ranks.at<std::uint64_t>(rank, 0), static_cast<std::size_t>(rows) * kRowBytes / 8, round << 32 | round);
  return ranks.post(rank, rowsAndWord(1 - rank, rows, round), patience(), NervousMemory());
}

// Returns the number of wrong words, or of all words if the rows do not arrive.
std::size_t receiveRound(Ranks& ranks, int rank, std::uint64_t round, int rows) {
  const std::size_t words = static_cast<std::size_t>(rows) * kRowBytes / 8;
  const HostQueueMemory memory;
  const auto* word = ranks.at<std::uint64_t>(rank, kWords);
  if (!waitUntil(memory, patience(), [&] { return memory.load(word) == round; })) return words;
  const auto* arrived = ranks.at<std::uint64_t>(rank, 16384);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < words; ++i) wrong += arrived[i] != (round << 32 | round);
  return wrong;
}

// The indices pass 2^16 during the test, and one batch fills the queue.
TEST(PutQueue, RowsAreThereWhenTheirWordIs) {
  constexpr std::uint64_t kRounds = 30;
  Ranks ranks({2, 8, 65536 - 301});
  std::size_t wrong[2] = {};
  {
    const Repeater engine([&] { ranks.step(); }), owner([&] { ranks.drain(); });
    std::thread other([&] {
      for (std::uint64_t round = 1; round <= kRounds && wrong[1] == 0; ++round) {
        wrong[1] += receiveRound(ranks, 1, round, 20);
        if (!sendRound(ranks, 1, round, 20)) break;
      }
    });
    for (std::uint64_t round = 1; round <= kRounds && wrong[0] == 0; ++round) {
      if (!sendRound(ranks, 0, round, 20)) break;
      wrong[0] += receiveRound(ranks, 0, round, 20);
    }
    other.join();
  }
  EXPECT_EQ(wrong[0] + wrong[1], 0u);
  ranks.expectDone();
  EXPECT_EQ(ranks.slotsUsed(0, 1), kRounds * 21);
}

// More posters than a queue has room for, and each posts to all ranks.
TEST(PutQueue, PostersThatShareQueuesLoseNothing) {
  constexpr std::uint64_t kPosters = 4, kRounds = 60;
  Ranks ranks({3, 8, 65536 - 500});
  std::atomic<int> finished{0};
  {
    const Repeater engine([&] { ranks.step(); }), owner([&] { ranks.drain(); });
    std::vector<std::thread> posters;
    for (std::uint64_t poster = 0; poster < kPosters; ++poster) {
      posters.emplace_back([&, poster] {
        Ranks& all = ranks;
        int late = 0;
        for (std::uint64_t round = 1; round <= kRounds; ++round) {
          const auto putOf = [&](int i) {
            const auto word = static_cast<std::uint64_t>(i % 5);
            return putWord(i / 5, kWords + (poster * 5 + word) * 8, round * 10 + word);
          };
          if (!mlx5::postPuts(NervousMemory(), all.queuesOf(0), toRank, 15, putOf, patience(), &late)) return;
        }
        ++finished;
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  EXPECT_EQ(finished, 4);
  ranks.expectDone();
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.slotsUsed(0, rank), kPosters * kRounds * 5);
    for (std::uint64_t i = 0; i < kPosters * 5; ++i) {
      EXPECT_EQ(*ranks.at<std::uint64_t>(rank, kWords + i * 8), kRounds * 10 + i % 5);
    }
  }
}

TEST(PutQueue, AFullQueueMakesItsRankLate) {
  Ranks ranks({3, 8});
  EXPECT_TRUE(ranks.post(0, rowsAndWord(1, 7, 1)));
  EXPECT_FALSE(ranks.post(0, {putWord(2, kWords, 5), putWord(1, kWords, 2)}, patience<5>()));
  EXPECT_EQ(ranks.late, 1);
  EXPECT_FALSE(ranks.post(0, rowsAndWord(2, 20, 1), noPatience()));
  EXPECT_EQ(ranks.late, 2);
}

TEST(PutQueue, LongPutsGoInPieces) {
  Ranks ranks({2, 8, 0, 64});
  std::iota(ranks.at<std::uint32_t>(0, 0), ranks.at<std::uint32_t>(0, 4096), 1u);
  struct {
    std::uint32_t bytes;
    std::uint64_t slots;
  } const cases[] = {{4, 1}, {60, 1}, {64, 1}, {68, 2}, {128, 2}, {1000, 16}};
  const Repeater engine([&] { ranks.step(), ranks.drain(); });
  std::uint64_t at = 8192, used = 0, round = 0;
  for (const auto& [bytes, slots] : cases) {
    ASSERT_TRUE(ranks.post(0, {putBytes(1, at, 0, bytes), putWord(1, kWords, ++round)}));
    EXPECT_EQ(ranks.slotsUsed(0, 1) - used, slots + 1);
    used += slots + 1;
    const HostQueueMemory memory;
    ASSERT_TRUE(
        waitUntil(memory, patience(), [&] { return memory.load(ranks.at<std::uint64_t>(1, kWords)) == round; }));
    EXPECT_EQ(std::memcmp(ranks.at<void>(1, at), ranks.at<void>(0, 0), bytes), 0) << bytes;
    EXPECT_EQ(*ranks.at<std::uint32_t>(1, at + bytes), 0u);
    at += 2048;
  }
}

TEST(PutQueue, AWordLandsAsItIsReadHere) {
  Ranks ranks({2, 8});
  ASSERT_TRUE(ranks.post(0, {putWord(1, kWords, 0x0123456789abcdef)}));
  ranks.expectDone();
  EXPECT_EQ(*ranks.at<std::uint64_t>(1, kWords), 0x0123456789abcdefu);
  EXPECT_EQ(*ranks.at<std::uint64_t>(1, kWords + 8), 0u);
}

TEST(PutQueue, DoorbellsAreForWordsAndForManyThatWait) {
  Ranks ranks({3, 256});
  const CountingMemory memory;
  ASSERT_TRUE(ranks.post(0, rowsAndWord(1, 50, 1), patience(), memory));
  EXPECT_EQ(*memory.rings, 1);
  std::vector<Put> rows = rowsAndWord(1, 70, 0);
  rows.pop_back();
  ASSERT_TRUE(ranks.post(0, rows, patience(), memory));
  EXPECT_EQ(*memory.rings, 1);
  ASSERT_TRUE(ranks.post(0, rows, patience(), memory));
  EXPECT_EQ(*memory.rings, 2);
  ASSERT_TRUE(ranks.post(0, {putWord(1, kWords, 2), putWord(1, kWords, 3), putWord(2, kWords, 1)}, patience(), memory));
  EXPECT_EQ(*memory.rings, 4);
  ranks.expectDone();
  EXPECT_EQ(*ranks.at<std::uint64_t>(1, kWords), 3u);
}

}  // namespace
}  // namespace moe::test
