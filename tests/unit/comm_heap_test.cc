#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "comm/communicator/heap.h"
#include "support/base/rng.h"

namespace moe::test {
namespace {

TEST(Heap, PiecesNeverOverlapAndComeBackWhole) {
  Heap heap(1 << 20);
  Rng rng(3);
  struct Piece {
    std::uint64_t offset, bytes;
  };
  std::vector<Piece> taken;
  for (int i = 0; i < 4000; ++i) {
    if (!taken.empty() && rng.coin()) {
      const auto victim = static_cast<std::size_t>(rng.below(static_cast<int>(taken.size())));
      heap.giveBack(taken[victim].offset);
      taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(victim));
      continue;
    }
    const auto bytes = static_cast<std::uint64_t>(rng.between(1, 9000));
    std::uint64_t offset = 0;
    try {
      offset = heap.take(bytes);
    } catch (const Error&) {
      continue;  // full for now
    }
    EXPECT_EQ(offset % Heap::kAlignment, 0u);
    EXPECT_GE(heap.roomAt(offset), bytes);
    EXPECT_LT(heap.roomAt(offset), bytes + Heap::kAlignment);
    for (const Piece& other : taken) {
      EXPECT_TRUE(offset + bytes <= other.offset || other.offset + other.bytes <= offset);
    }
    taken.push_back({offset, bytes});
  }
  for (const Piece& piece : taken) heap.giveBack(piece.offset);
  EXPECT_EQ(heap.take(1 << 20), 0u);  // all pieces have merged into one again
}

TEST(Heap, RefusesWhatItDidNotGive) {
  Heap heap(4096);
  const std::uint64_t offset = heap.take(100);
  EXPECT_THROW(heap.giveBack(offset + 256), Error);
  heap.giveBack(offset);
  EXPECT_THROW(heap.giveBack(offset), Error);
  EXPECT_THROW(heap.take(4097), Error);
}

TEST(Heap, RoomEndsWithWhatWasTaken) {
  Heap heap(8192);
  EXPECT_EQ(heap.roomAt(0), 0u) << "nothing was taken";
  const std::uint64_t first = heap.take(1024), second = heap.take(100);
  EXPECT_EQ(heap.roomAt(first), 1024u);
  EXPECT_EQ(heap.roomAt(first + 1000), 24u);
  EXPECT_EQ(heap.roomAt(second), 256u) << "rounded up: nobody else has the rest";
  EXPECT_EQ(heap.roomAt(second + 256), 0u) << "right behind it";
  EXPECT_EQ(heap.roomAt(second + 1000), 0u);
  heap.giveBack(first);
  EXPECT_EQ(heap.roomAt(first), 0u);
  EXPECT_EQ(heap.roomAt(second), 256u);
}

}  // namespace
}  // namespace moe::test
