// Statistics of a handle, and the caller's own counters: the rows that arrived, and the ranks that were awaited.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class Statistics : public OnBackend {};

constexpr int kRanks = 3;
// Much longer than a loaded machine takes to run a rank again, because the other ranks may come late too.
constexpr auto kDelay = std::chrono::milliseconds(200);
constexpr std::int64_t kSurelyWaitedNs = 40'000'000;

moeHandleConfig_t counted(int mode, int layout) {
  moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
  config.experts = 6;
  config.topk = kTopk;
  config.mode = mode;
  config.layout = layout;
  config.tokensMax = 8;
  config.statistics = 1;
  return config;
}

template <class Body>
void inBothModes(Body body) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) body(counted(mode, layout));
  }
}

// In Calls, every rank sends each of its tokens to experts 0 and 2, or 1 and 3.
TEST_P(Statistics, CountRowsOfEachExpertAndRank) {
  inBothModes([&](const moeHandleConfig_t& shape) {
    world(kRanks, config(), [&](RankContext& context) {
      Calls calls(context, shape);
      context.meet();
      auto* perCall = static_cast<std::int32_t*>(calls.take(2 * 4));
      context.arena.upload(perCall, std::vector<std::int32_t>{100, 200}.data(), 8);
      for (int i = 0; i < 3; ++i) {
        DispatchFields args = calls.dispatchArgs();
        args.describe.cumulativeRows = i < 2 ? perCall : nullptr;
        MOE_EXPECT_OK(calls.route(), context);
        MOE_EXPECT_OK(calls.dispatch(args), context);
        MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
      }
      moeStatistics_t statistics = MOE_STATISTICS_INITIALIZER;
      MOE_ASSERT_OK(moeHandleGetStatistics(calls.handle(), &statistics), context);
      EXPECT_EQ(moeHandleGetStatistics(calls.handle(), nullptr), moeInvalidArgument);
      const bool any = context.rank < 2;  // nobody asks for experts 4 and 5
      const std::int64_t each = any ? 3 * kRanks * kTokens / 2 : 0;
      EXPECT_EQ(context.arena.get(statistics.rowsPerExpert, 2), std::vector<std::int64_t>(2, each));
      EXPECT_EQ(context.arena.get(statistics.rowsPerRank, kRanks),
                std::vector<std::int64_t>(kRanks, any ? 3 * kTokens : 0));
      const int twice = any ? 2 * kRanks * kTokens / 2 : 0;
      EXPECT_EQ(context.arena.get(perCall, 2), (std::vector<std::int32_t>{100 + twice, 200 + twice}));
    });
  });
}

// Ranks set off together to within microseconds: the calling threads look at the clock without yielding.
void waitUntil(std::chrono::steady_clock::time_point time) {
  while (std::chrono::steady_clock::now() < time) continue;
}

// If a rank comes 500 us late, the others wait for it for 450 to 600 us, and no rank waits for any other one for 50 us.
// This is the mean of 20 steps, and needs a GPU and a processor for each rank.
TEST_P(Statistics, MeasureADelay) {
  const int ranks = cudaDeviceCount() >= 4 ? 4 : 2;
  if (GetParam() != moeBackendCuda || cudaDeviceCount() < 2) GTEST_SKIP() << "needs two GPUs";
  constexpr int kSteps = 20;
  using Clock = std::chrono::steady_clock;
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (const bool inCombine : {false, true}) {
      std::atomic<Clock::rep> begin = 0;
      world(ranks, config(), [&](RankContext& context) {
        moeHandleConfig_t shape = counted(mode, moeLayoutFlat);
        shape.experts = 4;
        Calls calls(context, shape);
        const std::vector<std::int64_t> none(static_cast<std::size_t>(ranks), 0);
        auto* waits = static_cast<std::int64_t*>(calls.take(none.size() * 8));
        MOE_ASSERT_OK(calls.route(), context);
        const auto setOff = [&] {
          context.arena.synchronize();
          if (context.rank == 0) begin = (Clock::now() + std::chrono::milliseconds(2)).time_since_epoch().count();
          context.meet();
          const auto late = std::chrono::microseconds(context.rank == 1 ? 500 : 0);
          waitUntil(Clock::time_point(Clock::duration(begin)) + late);
        };
        for (int i = -2; i < kSteps; ++i) {  // the first two load what a process loads once
          if (i == 0) context.arena.upload(waits, none.data(), none.size() * 8);
          DispatchFields dispatch = calls.dispatchArgs();
          CombineFields combine = calls.combineArgs();
          (inCombine ? combine.cumulativeWaitNs : dispatch.describe.cumulativeWaitNs) = waits;
          if (!inCombine) setOff();
          MOE_ASSERT_OK(calls.dispatch(dispatch), context);
          if (inCombine) setOff();
          MOE_ASSERT_OK(calls.combine(combine), context);
        }
        const std::vector<std::int64_t> waited = context.arena.get(waits, none.size());
        for (int rank = 0; rank < ranks; ++rank) {
          const auto us = static_cast<double>(waited[static_cast<std::size_t>(rank)]) / 1e3 / kSteps;
          const bool waits1 = rank == 1 && context.rank != 1;
          EXPECT_GE(us, waits1 ? 450 : 0) << "for rank " << rank << " at rank " << context.rank << ", mode " << mode;
          EXPECT_LE(us, waits1 ? 600 : 50) << "for rank " << rank << " at rank " << context.rank << ", mode " << mode;
        }
      });
    }
  }
}

// The rank that comes late is the one that the others wait for. It waits for nobody.
TEST_P(Statistics, NameTheRankThatIsWaitedFor) {
  inBothModes([&](const moeHandleConfig_t& shape) {
    for (const bool inCombine : {false, true}) {
      world(kRanks, config(), [&](RankContext& context) {
        moeHandleConfig_t own = shape;
        own.statistics = context.rank == 0 ? 0 : 1;  // ranks may differ
        Calls calls(context, own);
        auto* perCall = static_cast<std::int64_t*>(calls.take(kRanks * 8));
        context.arena.upload(perCall, std::vector<std::int64_t>(kRanks, 0).data(), kRanks * 8);
        DispatchFields dispatch = calls.dispatchArgs();
        CombineFields combine = calls.combineArgs();
        (inCombine ? combine.cumulativeWaitNs : dispatch.describe.cumulativeWaitNs) = perCall;
        MOE_EXPECT_OK(calls.route(), context);
        context.arena.synchronize();
        context.meet();
        if (!inCombine && context.rank == 2) std::this_thread::sleep_for(kDelay);
        MOE_EXPECT_OK(calls.dispatch(dispatch), context);
        context.arena.synchronize();
        context.meet();
        if (inCombine && context.rank == 2) std::this_thread::sleep_for(kDelay);
        MOE_EXPECT_OK(calls.combine(combine), context);
        const auto waited = context.arena.get(perCall, kRanks);
        if (context.rank == 2) return;
        EXPECT_GT(waited[2], kSurelyWaitedNs) << "at rank " << context.rank;
        EXPECT_GT(waited[2], std::max(waited[0], waited[1])) << "at rank " << context.rank;
        if (context.rank == 0) return;
        moeStatistics_t statistics = MOE_STATISTICS_INITIALIZER;
        MOE_ASSERT_OK(moeHandleGetStatistics(calls.handle(), &statistics), context);
        EXPECT_GE(context.arena.get(inCombine ? statistics.combineWaitNs : statistics.dispatchWaitNs, kRanks)[2],
                  waited[2]);
        EXPECT_GE(context.arena.get(statistics.lateSteps, kRanks)[2], 1);
      });
    }
  });
}

TEST_P(Statistics, AreOfHandlesThatWereMadeWithThem) {
  world(1, config(), [](RankContext& context) {
    moeHandleConfig_t shape = counted(moeModeHt, moeLayoutFlat);
    shape.statistics = 0;
    Calls calls(context, shape);
    moeStatistics_t statistics = MOE_STATISTICS_INITIALIZER;
    EXPECT_EQ(moeHandleGetStatistics(calls.handle(), &statistics), moeInvalidUsage);
    EXPECT_TRUE(says(context.error(), "made without config.statistics"));
    MOE_EXPECT_OK(calls.route(), context);
    DispatchFields args = calls.dispatchArgs();
    args.describe.cumulativeWaitNs = reinterpret_cast<std::int64_t*>(static_cast<std::uint8_t*>(calls.take(64)) + 4);
    EXPECT_EQ(calls.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.describe.cumulativeWaitNs is "));
    args.describe.cumulativeWaitNs = nullptr;
    args.describe.cumulativeRows = static_cast<std::int32_t*>(calls.arrived());
    EXPECT_EQ(calls.dispatch(args), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "overlaps args.outRows ("));
    CombineFields sums = calls.combineArgs();
    sums.cumulativeWaitNs = static_cast<std::int64_t*>(calls.out());
    EXPECT_EQ(calls.combine(sums), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "args.cumulativeWaitNs ("));
  });
}

MOE_INSTANTIATE_BACKENDS(Statistics);

}  // namespace
}  // namespace moe::test
