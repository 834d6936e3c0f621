// The contract of the policy operations, for every policy that runs on threads. ThreadedWarp must do with several lanes
// what HostWarp does with one. The tests also check that ThreadedWarp detects lanes that disagree.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "protocol/handover.h"
#include "protocol/lists.h"
#include "protocol/one_warp.h"
#include "support/programs/thread_runner.h"
#include "support/reference/payload.h"

namespace moe::test {
namespace {

// The concepts must refuse a class that lacks an operation or has one with another result.
struct Nothing {};
struct WithoutWait : HostWarp {
  bool waitAll() const;
};
struct WithoutScan : HostWarp {
  void scanInOrder() const;
};
struct WithoutRows : HostWarp {
  void streamRows() const;
};
struct WithoutLanding : HostWarp {
  template <SumList List>
  bool reduceRows(const CommView&, const List&) const requires(!TakesLanded<List>);
};
static_assert(!Core<Nothing> && !Core<WithoutWait>);
static_assert(Core<WithoutScan> && Moves<WithoutScan> && !Computes<WithoutScan>);
static_assert(Computes<WithoutRows> && !Moves<WithoutRows>);
static_assert(Moves<WithoutLanding> && !Lands<WithoutLanding>);

template <class Team>
class Policy : public testing::Test {};
TYPED_TEST_SUITE(Policy, Teams, TeamNames);

TYPED_TEST(Policy, CallsTheBodyOnceForEachItem) {
  for (const int n : {0, 1, 3, 4, 29}) {
    std::vector<int> calls(32, 0);
    onOneWarp<TypeParam>(
        [&](const auto& warp) { warp.forEach(n, [&](int i) { ++calls[static_cast<std::size_t>(i)]; }); });
    for (int i = 0; i < 32; ++i) EXPECT_EQ(calls[static_cast<std::size_t>(i)], i < n ? 1 : 0);
  }
}

TYPED_TEST(Policy, ScansInOrderAndReturnsTheSumToEveryLane) {
  for (const int n : {0, 1, 5, 64, 65, 200}) {
    std::vector<int> before(200, -1);
    std::atomic<int> wrongSums{0};
    onOneWarp<TypeParam>([&](const auto& warp) {
      const int sum = warp.scanInOrder(
          n, [](int i) { return i * i; },
          [&](int i, int sumBefore) { before[static_cast<std::size_t>(i)] = sumBefore; });
      int expected = 0;
      for (int i = 0; i < n; ++i) expected += i * i;
      if (sum != expected) ++wrongSums;
    });
    EXPECT_EQ(wrongSums, 0);
    for (int i = 0, sum = 0; i < n; sum += i * i, ++i) EXPECT_EQ(before[static_cast<std::size_t>(i)], sum);
  }
}

TYPED_TEST(Policy, SetsBitsFromAllLanes) {
  std::uint32_t word = 1u << 31;
  onOneWarp<TypeParam>([&](const auto& warp) { warp.forEach(20, [&](int i) { warp.laneOr(&word, 1u << i); }); });
  EXPECT_EQ(word, 1u << 31 | ((1u << 20) - 1));
}

TYPED_TEST(Policy, StreamsEachRowToAllItsPlaces) {
  constexpr int kBytes = 208, kRows = 5;
  GuardedBytes from(kRows * kBytes), to(3 * kRows * kBytes);
  for (int i = 0; i < kRows; ++i) fillRow(rowKey(1, 0, i), from.data() + i * kBytes, kBytes);
  onOneWarp<TypeParam>([&](const auto& warp) {
    warp.streamRows(copiesOf(
        kRows, 3,
        [&](int i) {
          return CopyJob{from.data() + i * kBytes, kBytes, i % 4};
        },
        [&](int i, int sink) {
          return Sink{to.data() + (sink * kRows + i) * kBytes, nullptr, sink == 0};
        }));
  });
  for (int i = 0; i < kRows; ++i) {
    for (int sink = 0; sink < 3; ++sink) {
      const std::uint8_t* row = to.data() + (sink * kRows + i) * kBytes;
      EXPECT_TRUE(sink < i % 4 ? rowIs(rowKey(1, 0, i), row, kBytes) : isPoison(row, kBytes)) << i << " " << sink;
    }
  }
  EXPECT_TRUE(to.guardsAreIntact());
}

// Rows and side payloads of several lengths, some longer than what a policy moves at once. One row has no side payload.
template <class Team>
void expectPairs(int rowBytes, int sideBytes) {
  constexpr int kRows = 5, kSinks = 3, kNoSide = 3;
  const auto size = [](int bytes) { return static_cast<std::size_t>(bytes); };
  GuardedBytes rows(size(kRows * rowBytes)), sides(size(kRows * sideBytes));
  GuardedBytes outRows(size(kSinks * kRows * rowBytes)), outSides(size(kSinks * kRows * sideBytes));
  for (int i = 0; i < kRows; ++i) {
    fillRow(rowKey(1, 0, i), rows.data() + i * rowBytes, rowBytes);
    fillRow(rowKey(2, 0, i), sides.data() + i * sideBytes, sideBytes);
  }
  const auto goes = [](int i, int sink) { return (i + sink) % 3 != 0; };
  onOneWarp<Team>([&](const auto& warp) {
    warp.streamRows(copiesOf<true>(
        kRows, kSinks,
        [&](int i) {
          return CopyJob{rows.data() + i * rowBytes, static_cast<std::uint32_t>(rowBytes), kSinks,
                         sides.data() + i * sideBytes, i == kNoSide ? 0 : static_cast<std::uint32_t>(sideBytes)};
        },
        [&](int i, int sink) {
          const int at = sink * kRows + i;
          if (!goes(i, sink)) return Sink{};
          return Sink{outRows.data() + at * rowBytes, outSides.data() + at * sideBytes, sink == i % 2};
        }));
  });
  for (int at = 0; at < kSinks * kRows; ++at) {
    const int i = at % kRows;
    const bool came = goes(i, at / kRows);
    const std::uint8_t *row = outRows.data() + at * rowBytes, *side = outSides.data() + at * sideBytes;
    EXPECT_TRUE(came ? rowIs(rowKey(1, 0, i), row, rowBytes) : isPoison(row, size(rowBytes))) << at;
    const bool hasSide = came && i != kNoSide;
    EXPECT_TRUE(hasSide ? rowIs(rowKey(2, 0, i), side, sideBytes) : isPoison(side, size(sideBytes))) << at;
  }
  EXPECT_TRUE(outRows.guardsAreIntact() && outSides.guardsAreIntact());
}

TYPED_TEST(Policy, StreamsPairsToAllTheirPlaces) {
  for (const int rowBytes : {16, 208, 9024}) {
    for (const int sideBytes : {16, 224, 8208}) expectPairs<TypeParam>(rowBytes, sideBytes);
  }
}

TYPED_TEST(Policy, ReadsBehindForEachWhatItHasWritten) {
  EXPECT_EQ(readBehindForEach<TypeParam>(), 0);
}

TYPED_TEST(Policy, PublishesWhatEveryLaneHasStored) {
  EXPECT_EQ(handOver<TypeParam>(50), 0);
}

// The sum is longer than any tile. Each term is rounded by itself.
template <class Team, bool kWeighted>
void expectSums(int rowType) {
  constexpr int kBytes = 2576, kTerms = 5;
  GuardedBytes rows(kTerms * kBytes), out(kBytes);
  for (int t = 0; t < kTerms; ++t) fillTypedRow(rowType, rowKey(2, 0, t), rows.data() + t * kBytes, kBytes);
  const auto weightOf = [](int term) { return static_cast<float>(term - 2) / 3.0f; };
  onOneWarp<Team>([&](const auto& warp) {
    const SumJob sum{out.data(), kBytes, kTerms};
    const auto rowAt = [&](int term) { return rows.data() + term * kBytes; };
    if (kWeighted) {
      EXPECT_TRUE(warp.reduceRows(CommView{}, weightedSumOf(rowType, sum, rowAt, weightOf)));
    } else {
      EXPECT_TRUE(warp.reduceRows(CommView{}, sumOf(rowType, sum, rowAt)));
    }
  });
  std::vector<std::uint8_t> expected(kBytes);
  for (int i = 0; i < kBytes / elementBytes(rowType); ++i) {
    float sum = 0.0f;
    for (int t = 0; t < kTerms; ++t) {
      volatile float term = decodeElement(rowType, rows.data() + t * kBytes, i);
      if (kWeighted) term = term * weightOf(t);
      sum += term;
    }
    encodeElement(rowType, sum, expected.data(), i);
  }
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), kBytes), 0) << "row type " << rowType;
  EXPECT_TRUE(out.guardsAreIntact());
}

TYPED_TEST(Policy, SumsRowsInOrder) {
  for (const int rowType : {kBf16, kFp16, kFp32}) {
    expectSums<TypeParam, false>(rowType);
    expectSums<TypeParam, true>(rowType);
  }
}

// A sum of three rows. One was copied into landing words, one was summed into landing words, and one is an ordinary
// row. Some of their words are all ones.
template <class Team>
void expectLanding(int rowType) {
  constexpr int kBytes = 1296, kTerms = 3;
  GuardedBytes rows(kTerms * kBytes), landing(2 * kBytes), out(kBytes), expected(kBytes);
  for (int t = 0; t < kTerms; ++t) fillTypedRow(rowType, rowKey(3, 0, t), rows.data() + t * kBytes, kBytes);
  std::memset(rows.data() + 64, 0xff, 24);
  std::memset(rows.data() + kBytes + 256, 0xff, 4);
  std::memset(landing.data(), 0, landing.size());
  const auto rowAt = [&](int term) { return rows.data() + term * kBytes; };
  const auto landedAt = [&](int term) { return term < 2 ? landing.data() + term * kBytes : rowAt(term); };
  Waiting waiting;
  onOneWarp<Team>([&](const auto& warp) {
    warp.streamRows(copiesOf<false, true>(
        1, 1,
        [&](int) {
          return CopyJob{rows.data(), kBytes, 1};
        },
        [&](int, int) {
          return Sink{landing.data(), nullptr, false};
        }));
    const auto second = [&](int) { return rowAt(1); };
    warp.reduceRows(waiting.view, sumOf<true>(rowType, {landing.data() + kBytes, kBytes, 1}, second));
    EXPECT_TRUE(warp.reduceRows(waiting.view, landedSumOf(rowType, {out.data(), kBytes, kTerms}, 2, 0, landedAt)));
    warp.reduceRows(waiting.view, sumOf(rowType, {expected.data(), kBytes, kTerms}, rowAt));
  });
  EXPECT_EQ(std::memcmp(out.data(), expected.data(), kBytes), 0) << "row type " << rowType;
  EXPECT_EQ(std::count(landing.data(), landing.data() + 2 * kBytes, 0), 2 * kBytes) << "a place is not empty";
  EXPECT_TRUE(out.guardsAreIntact() && landing.guardsAreIntact());
}

TYPED_TEST(Policy, TakesRowsThatLand) {
  for (const int rowType : {kBf16, kFp16, kFp32}) expectLanding<TypeParam>(rowType);
}

TEST(ThreadedWarp, FindsLanesThatDisagreeAboutACount) {
  std::atomic<int> lanes{0};
  EXPECT_THROW(
      onOneWarp<LaneTeam<4>>([&](const ThreadedWarp<4>& warp) { warp.forEach(lanes++ == 0 ? 2 : 3, [](int) {}); }),
      LanesDiverged);
}

TEST(ThreadedWarp, FindsALaneThatLeavesACollectiveOut) {
  std::atomic<int> lanes{0};
  EXPECT_THROW(onOneWarp<LaneTeam<4>>([&](const ThreadedWarp<4>& warp) {
                 if (lanes++ != 0) warp.forEach(1, [](int) {});
                 warp.endStep();
               }),
               LanesDiverged);
}

TEST(ThreadedWarp, FindsLanesThatStreamToDifferentPlaces) {
  GuardedBytes memory(256);
  std::atomic<int> lanes{0};
  EXPECT_THROW(onOneWarp<LaneTeam<4>>([&](const ThreadedWarp<4>& warp) {
                 std::uint8_t* to = memory.data() + (lanes++ == 0 ? 128 : 64);
                 warp.streamRows(copiesOf(
                     1, 1,
                     [&](int) {
                       return CopyJob{memory.data(), 64, 1};
                     },
                     [&](int, int) {
                       return Sink{to, nullptr, true};
                     }));
                 warp.endStep();
               }),
               LanesDiverged);
}

// The reference's number formats are written from their definitions. The library's must agree.
TEST(RowMath, DecodesEveryHalfAsTheReferenceDoes) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    std::uint8_t row[2];
    std::memcpy(row, &bits, 2);
    const bool finiteHalf = (bits & 0x7c00u) != 0x7c00u, finiteBrain = (bits & 0x7f80u) != 0x7f80u;
    if (finiteHalf) {
      ASSERT_EQ(Fp16::toFloat(bits), decodeElement(kFp16, row, 0));
    }
    if (finiteBrain) {
      ASSERT_EQ(Bf16::toFloat(bits), decodeElement(kBf16, row, 0));
    }
  }
}

TEST(RowMath, RoundsAsTheReferenceDoes) {
  const auto expectSame = [](float value) {
    std::uint8_t half[2], brain[2];
    encodeElement(kFp16, value, half, 0);
    encodeElement(kBf16, value, brain, 0);
    std::uint16_t expectedHalf, expectedBrain;
    std::memcpy(&expectedHalf, half, 2);
    std::memcpy(&expectedBrain, brain, 2);
    EXPECT_EQ(Fp16::fromFloat(value), expectedHalf) << value;
    EXPECT_EQ(Bf16::fromFloat(value), expectedBrain) << value;
  };
  // Values around every half: itself, its neighbours in fp32, and the midpoint to the next half with its neighbours.
  for (std::uint32_t half = 0; half < 0x7c00u; ++half) {
    const float value = Fp16::toFloat(half), next = half + 1 < 0x7c00u ? Fp16::toFloat(half + 1) : 65536.0f;
    for (const float middle : {value, value + (next - value) / 2.0f}) {
      expectSame(middle), expectSame(-middle);
      expectSame(std::nextafter(middle, 1e30f)), expectSame(std::nextafter(middle, -1e30f));
    }
  }
  Rng rng(11);
  for (int i = 0; i < 200'000; ++i) {
    const auto bits = static_cast<std::uint32_t>(rng.next());
    if ((bits & 0x7f800000u) != 0x7f800000u) expectSame(bitsToFloat(bits));
  }
}

}  // namespace
}  // namespace moe::test
