// The ceilings of moe_perf. The test carries out their kernels' copies on the host and checks that every row reaches
// its place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "moecomm.h"
#include "perf/ceiling/ceiling_plan.h"

namespace moe::test {
namespace {

using namespace moe::perf;

constexpr int kRanks = 4;
constexpr int kTokens = 33;
constexpr int kTopk = 6;
constexpr int kSlots = std::min(kRanks, kTopk);
constexpr std::uint64_t kSeed = 11;
constexpr RowShape kShape{Format::bf16, 2056, 0};
constexpr std::uint32_t kRowBytes = 2056 * 2;

using Pushes = std::vector<RowCopy> (RowTraffic::*)(int) const;
using Buffers = std::vector<std::vector<std::byte>>;

Options makeOptions() {
  Options options;
  options.hidden = kShape.hidden;
  options.topk = kTopk;
  options.experts = 13;
  options.layout = moeLayoutFlat;
  return options;
}

// A route over all ranks, and the buffers between which its rows are copied.
struct CeilingWorld {
  explicit CeilingWorld(const Options& options = makeOptions()) {
    const Load load = evenLoad(kRanks, kTokens);
    for (int rank = 0; rank < kRanks; ++rank) plans.push_back(makePlan(options, kSeed, load, 0, rank));
    for (const Plan& plan : plans) sent.push_back(sentRows(plan, kRanks, kSlots));
  }

  RowTraffic traffic() const { return {sent, kSlots}; }
  PayloadOf payloadOf() const { return {kSeed, &iteration}; }

  // Buffers of `rows` rows per rank. In filled buffers, row i of rank r equals token i of source r.
  static Buffers buffersOf(std::int64_t rows) {
    return Buffers(kRanks, std::vector<std::byte>(static_cast<std::size_t>(rows * kRowBytes)));
  }
  Buffers filled(std::int32_t rows) const {
    Buffers buffers = buffersOf(rows);
    for (int rank = 0; rank < kRanks; ++rank) {
      const FillRows job{payloadOf(), kShape, rank, rows, buffers[static_cast<std::size_t>(rank)].data()};
      for (std::int64_t row = 0; row < rows; ++row) job(row, 0, 1);
    }
    return buffers;
  }

  std::vector<RowSpec> arrivals(Pushes copiesOf, int rank) const {
    const RowTraffic all = traffic();
    std::vector<RowSpec> specs;
    for (int other = 0; other < kRanks; ++other) {
      const auto some = arrivalsOf((all.*copiesOf)(other), rank);
      specs.insert(specs.end(), some.begin(), some.end());
    }
    return specs;
  }

  unsigned long long wrongIn(const Buffers& target, Pushes copiesOf) const {
    Findings findings{};
    for (int rank = 0; rank < kRanks; ++rank) {
      const std::vector<RowSpec> specs = arrivals(copiesOf, rank);
      const VerifyRows job{payloadOf(),
                           kShape,
                           specs.data(),
                           static_cast<std::int64_t>(specs.size()),
                           1,
                           target[static_cast<std::size_t>(rank)].data(),
                           &findings};
      for (std::int64_t row = 0; row < job.rowCount(); ++row) job(row, 0, 1);
    }
    return findings.wrongPayloads;
  }

  std::uint32_t iteration = 0;
  std::vector<Plan> plans;
  std::vector<SentRows> sent;
};

Addresses addressesOf(const Buffers& buffers) {
  Addresses addresses;
  for (const auto& buffer : buffers) addresses.push_back(reinterpret_cast<std::uint64_t>(buffer.data()));
  return addresses;
}

void copyBytes(std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
}

// Copies as a warp does: only the first copy of a source reads it.
void carryOut(const std::vector<BulkCopy>& copies) {
  std::vector<std::byte> stage;
  for (const BulkCopy& copy : copies) {
    if (copy.loads == 1) {
      stage.resize(copy.bytes);
      std::memcpy(stage.data(), reinterpret_cast<const void*>(copy.from), copy.bytes);
    }
    ASSERT_EQ(stage.size(), copy.bytes);
    std::memcpy(reinterpret_cast<void*>(copy.to), stage.data(), copy.bytes);
  }
}

using Arrival = std::tuple<std::int64_t, int, int>;
std::set<Arrival> asSet(const std::vector<RowSpec>& specs) {
  std::set<Arrival> found;
  for (const RowSpec& spec : specs) found.insert({spec.row, spec.source, spec.token});
  return found;
}

TEST(CeilingPlan, PushesDispatchToTheFlatRowsOfTheOtherRanks) {
  const CeilingWorld world;
  for (int rank = 0; rank < kRanks; ++rank) {
    std::vector<RowSpec> expected = world.plans[static_cast<std::size_t>(rank)].specs;
    std::erase_if(expected, [&](const RowSpec& spec) { return spec.source == rank; });
    const std::vector<RowSpec> actual = world.arrivals(&RowTraffic::dispatchPushes, rank);
    EXPECT_EQ(asSet(actual), asSet(expected));
    EXPECT_EQ(actual.size(), expected.size());
    EXPECT_EQ(world.traffic().flatRows(rank), world.plans[static_cast<std::size_t>(rank)].rows);
  }
}

TEST(CeilingPlan, PushesEachArrivedRowOnceToItsSlot) {
  const CeilingWorld world;
  std::set<std::pair<int, std::int64_t>> used;
  std::int64_t total = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<RowCopy> copies = world.traffic().combinePushes(rank);
    for (std::size_t i = 0; i < copies.size(); ++i) {
      EXPECT_EQ(copies[i].from.row, static_cast<std::int64_t>(i));
      EXPECT_TRUE(used.insert({copies[i].to.rank, copies[i].to.row}).second);
      const Plan& owner = world.plans[static_cast<std::size_t>(copies[i].to.rank)];
      const auto token = static_cast<std::size_t>(copies[i].to.row / kSlots);
      std::set<int> ranks;
      for (auto k = owner.entryOffsets[token]; k < owner.entryOffsets[token + 1]; ++k) {
        ranks.insert(owner.entries[static_cast<std::size_t>(k)].rank);
      }
      EXPECT_EQ(*std::next(ranks.begin(), copies[i].to.row % kSlots), rank);
    }
    total += static_cast<std::int64_t>(copies.size());
  }
  EXPECT_EQ(total, world.plans[0].remoteRowsAll);
}

TEST(CeilingPlan, LetsOwnersTakeTurns) {
  const CeilingWorld world;
  const std::vector<RowCopy> copies = world.traffic().combinePushes(1);
  ASSERT_GT(copies.size(), 12U);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(copies[static_cast<std::size_t>(i)].to.rank, (2 + i % 3) % kRanks);
}

TEST(CeilingPlan, PullsTheRowsThatWouldBePushed) {
  const CeilingWorld world;
  const RowTraffic traffic = world.traffic();
  for (int rank = 0; rank < kRanks; ++rank) {
    std::set<std::pair<int, std::int64_t>> pushed, pulled, targets;
    for (int other = 0; other < kRanks; ++other) {
      for (const RowCopy& copy : traffic.combinePushes(other)) {
        if (copy.to.rank == rank) pushed.insert({copy.from.rank, copy.from.row});
      }
    }
    std::int64_t last = -1;
    for (const RowCopy& copy : traffic.combinePulls(rank)) {
      pulled.insert({copy.from.rank, copy.from.row});
      const bool nextSlot = copy.to.row == last + 1 && copy.to.row % kSlots != 0;
      EXPECT_TRUE(nextSlot || (copy.to.row > last && copy.to.row % kSlots == 0)) << copy.to.row << " after " << last;
      last = copy.to.row;
    }
    EXPECT_EQ(pulled, pushed);
  }
}

TEST(CeilingPlan, MovesEveryByteInBulkCopies) {
  const CeilingWorld world;
  for (const std::uint32_t bytesMax : {kRowBytes, 1024U, 2048U}) {
    const Buffers source = world.filled(kTokens), arrived = world.filled(kRanks * kTokens);
    Buffers flat = CeilingWorld::buffersOf(kRanks * kTokens), slots = CeilingWorld::buffersOf(kTokens * kSlots),
            pulled = slots;
    const Parts parts = cutRows(1000, kRowBytes, 1, bytesMax);
    for (int rank = 0; rank < kRanks; ++rank) {
      const RowTraffic traffic = world.traffic();
      const auto move = [&](const std::vector<RowCopy>& copies, const Buffers& from, const Buffers& to) {
        carryOut(bulkCopies(copies, parts, kRowBytes, addressesOf(from), addressesOf(to)));
      };
      move(traffic.dispatchPushes(rank), source, flat);
      move(traffic.combinePushes(rank), arrived, slots);
      move(traffic.combinePulls(rank), arrived, pulled);
    }
    EXPECT_EQ(world.wrongIn(flat, &RowTraffic::dispatchPushes), 0U);
    EXPECT_EQ(world.wrongIn(slots, &RowTraffic::combinePushes), 0U);
    EXPECT_EQ(world.wrongIn(pulled, &RowTraffic::combinePulls), 0U);
  }
}

TEST(CeilingPlan, MovesEveryByteByTables) {
  const CeilingWorld world;
  const Buffers source = world.filled(kTokens), arrived = world.filled(kRanks * kTokens);
  Buffers flat = CeilingWorld::buffersOf(kRanks * kTokens), pulled = CeilingWorld::buffersOf(kTokens * kSlots);
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto sinks =
        sinkTable(world.traffic().dispatchPushes(rank), kTokens, kRanks - 1, kRowBytes, addressesOf(flat));
    const auto sources =
        sourceTable(world.traffic().combinePulls(rank), kTokens, kRanks - 1, kSlots, kRowBytes, addressesOf(arrived));
    for (std::uint64_t token = 0; token < kTokens; ++token) {
      for (std::uint64_t i = 0; i < kRanks - 1; ++i) {
        const std::uint64_t to = sinks[token * (kRanks - 1) + i], from = sources[token * (kRanks - 1) + i];
        const auto here = static_cast<std::size_t>(rank);
        if (to != 0) copyBytes(to, addressesOf(source)[here] + token * kRowBytes, kRowBytes);
        if (from != 0) copyBytes(addressesOf(pulled)[here] + (token * kSlots + i) * kRowBytes, from, kRowBytes);
      }
    }
  }
  EXPECT_EQ(world.wrongIn(flat, &RowTraffic::dispatchPushes), 0U);
  EXPECT_EQ(world.wrongIn(pulled, &RowTraffic::combinePulls), 0U);
}

TEST(CeilingPlan, HasNothingToMoveWithoutRemoteRows) {
  Options options = makeOptions();
  options.routing = Routing::empty;
  const CeilingWorld world(options);
  EXPECT_TRUE(world.traffic().dispatchPushes(0).empty());
  EXPECT_TRUE(world.traffic().combinePushes(1).empty());
  EXPECT_TRUE(world.traffic().combinePulls(2).empty());
  EXPECT_TRUE(bulkCopies({}, cutRows(0, kRowBytes, 64, 7168), kRowBytes, {}, {}).empty());
}

TEST(CeilingPlan, KeepsWhatIsSentOnTheWayBetweenRanks) {
  const CeilingWorld world;
  for (const SentRows& sent : world.sent) EXPECT_EQ(toSentRows(toNumbers(sent)), sent);
}

TEST(CeilingPlan, CutsRowsSoThatAllWarpsHaveWork) {
  Parts parts = cutRows(4096, 14336, 256, 7168);
  EXPECT_EQ(parts.count, 2);
  EXPECT_EQ(parts.bytes, 7168U);
  parts = cutRows(4096, 14336, 256, 14336);
  EXPECT_EQ(parts.count, 1);
  EXPECT_GE(parts.bytes, 14336U);
  parts = cutRows(1, 14336, 1056, 14336);
  EXPECT_EQ(parts.count, 28);
  for (const int rows : {1, 3, 64, 128, 500, 5000}) {
    for (const std::uint32_t rowBytes : {16U, 528U, 7392U, 14336U, 65536U}) {
      parts = cutRows(rows, rowBytes, 1056, 7168);
      EXPECT_LE(std::min(parts.bytes, rowBytes), 7168U);
      EXPECT_EQ(parts.bytes % 16, 0U);
      EXPECT_GE(static_cast<std::uint32_t>(parts.count) * parts.bytes, rowBytes);
      EXPECT_LT(static_cast<std::uint32_t>(parts.count - 1) * parts.bytes, rowBytes);
    }
  }
}

TEST(CeilingPlan, TriesTheMultiprocessorsThatThereAre) {
  EXPECT_EQ(multiprocessorsToTry(0, 0, false, 132), (std::vector<int>{8, 16, 24, 32, 64, 132}));
  EXPECT_EQ(multiprocessorsToTry(0, 0, false, 24), (std::vector<int>{8, 16, 24}));
  EXPECT_EQ(multiprocessorsToTry(0, 0, true, 132), (std::vector<int>{132}));
  EXPECT_EQ(multiprocessorsToTry(20, 0, false, 132), (std::vector<int>{20}));
  EXPECT_EQ(multiprocessorsToTry(200, 0, true, 132), (std::vector<int>{132}));
}

TEST(CeilingPlan, TriesWhatTheLibraryChose) {
  EXPECT_EQ(multiprocessorsToTry(0, 32, false, 132), (std::vector<int>{8, 16, 24, 32, 64, 132}));
  EXPECT_EQ(multiprocessorsToTry(0, 20, false, 132), (std::vector<int>{8, 16, 20, 24, 32, 64, 132}));
  EXPECT_EQ(multiprocessorsToTry(0, 33, true, 132), (std::vector<int>{33, 132}));
  EXPECT_EQ(multiprocessorsToTry(0, 200, true, 132), (std::vector<int>{132}));
  EXPECT_EQ(multiprocessorsToTry(16, 33, false, 132), (std::vector<int>{16}));
}

TEST(PerfChecks, FindAWrongSum) {
  const CeilingWorld world;
  const std::vector<RowSpec> terms = arrivalsOf(world.traffic().combinePulls(2), 2);
  const std::vector<std::int32_t> offsets = offsetsByToken(terms, kTokens, kSlots);
  std::vector<std::byte> sums(std::size_t{kTokens} * kRowBytes);
  for (std::size_t token = 0; token < kTokens; ++token) {
    for (int group = 0; group < kShape.groups(); ++group) {
      GroupValues sum{};
      for (std::int32_t i = offsets[token]; i < offsets[token + 1]; ++i) {
        const RowSpec& term = terms[static_cast<std::size_t>(i)];
        const GroupValues values = payload(world.payloadOf().key(term.source, term.token), group);
        for (int k = 0; k < kGroup; ++k) sum.value[k] += values.value[k];
      }
      storeGroup(kShape.format, &sums[token * kRowBytes], group, sum);
    }
  }
  const auto wrong = [&] {
    Findings findings{};
    const VerifySums job{world.payloadOf(), kShape, terms.data(), offsets.data(), kTokens, sums.data(), &findings};
    for (std::int64_t token = 0; token < job.rowCount(); ++token) job(token, 0, 1);
    return findings.wrongPayloads;
  };
  EXPECT_EQ(wrong(), 0U);
  sums[5 * kRowBytes + 101] ^= std::byte{0x40};
  EXPECT_EQ(wrong(), 1U);
}

}  // namespace
}  // namespace moe::test
