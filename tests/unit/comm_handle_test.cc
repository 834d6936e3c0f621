// Handles over a backend that the test watches: the state after a refused or failed call.
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <vector>

#include "bootstrap/group/unique_id.h"
#include "comm/handle/calls.h"
#include "unit/spy_backend.h"

namespace moe::test {
namespace {

using Clock = std::chrono::steady_clock;

// A communicator of one rank.
class Alone {
 public:
  Alone() {
    config_ = resolveConfig(nullptr);
    config_.interfaceName = "lo";
    config_.timeoutMs = 20000;
    config_.tokensMax = config_.llTokensMax = kTokens;
    config_.rowBytesMax = 256;
    config_.heapBytes = 1 << 16;
    comm_ = Comm::create(1, 0, bootstrap::createUniqueId(std::chrono::seconds(20), "lo"), config_, -1,
                         std::make_unique<SpyBackend>(spy));
  }

  Comm& comm() { return *comm_; }
  Handle& makeHandle(int mode, int layout, bool arrivals = false) {
    moeHandleConfig_t config = MOE_HANDLE_CONFIG_INITIALIZER;
    config.experts = kExperts;
    config.topk = 1;
    config.mode = mode;
    config.layout = layout;
    config.arrivals = arrivals ? 1 : 0;
    return *comm_->add(std::make_unique<Handle>(*comm_, config));
  }
  void route(Handle& handle) { moe::route(handle, {experts_, nullptr, kTokens}, nullptr); }
  void routeDispatch(Handle& handle, const moeDispatchArgs_t& args) {
    moe::routeDispatch(handle, {experts_, nullptr, kTokens}, DispatchRequest(&args), nullptr);
  }
  moeDispatchArgs_t dispatchArgs(void* out) {
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = rows_;
    args.rowType = moeRowBf16;
    args.hidden = 128;
    args.outRows = out;
    args.outRowsMax = out != nullptr ? kTokens : 0;
    return args;
  }
  moeCombineArgs_t combineArgs(void* rows) {
    moeCombineArgs_t args = MOE_COMBINE_ARGS_INITIALIZER;
    args.rows = rows;
    args.rowType = moeRowBf16;
    args.hidden = 128;
    args.out = rows_;
    return args;
  }
  void* other() { return other_; }

  static constexpr int kTokens = 4, kExperts = 4;
  Spy spy;

 private:
  Config config_;
  alignas(256) std::uint8_t rows_[kTokens * 256] = {};
  alignas(256) std::uint8_t other_[kTokens * 256] = {};
  std::int32_t experts_[kTokens] = {0, 1, 2, 3};
  std::unique_ptr<Comm> comm_;
};

template <class Call>
moeResult_t resultOf(Call call) {
  try {
    call();
    return moeSuccess;
  } catch (const Error& error) {
    return error.result();
  }
}

TEST(Handle, CountsOfARouteThatWasNotLaunchedAreNotWaitedFor) {
  Alone rank;
  Handle& handle = rank.makeHandle(moeModeHt, moeLayoutFlat);
  rank.spy.launchesFail = true;
  EXPECT_EQ(resultOf([&] { rank.route(handle); }), moeCudaError);
  EXPECT_EQ(resultOf([&] { handle.counts(); }), moeInvalidUsage) << "there was no route";
  rank.spy.launchesFail = false;
  rank.route(handle);
  rank.spy.launchesFail = true;
  EXPECT_EQ(resultOf([&] { rank.route(handle); }), moeCudaError);
  const auto begin = Clock::now();
  EXPECT_EQ(handle.counts().rows, Alone::kTokens) << "those of the route that ran";
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST(Handle, CapturedRoutesAreWaitedForOnlyWhileThereIsNoOther) {
  Alone rank;
  Handle& handle = rank.makeHandle(moeModeHt, moeLayoutFlat);
  rank.spy.captures = true;
  rank.route(handle);
  EXPECT_EQ(handle.counts().rows, Alone::kTokens);
  rank.spy.captures = false;
  rank.route(handle);
  EXPECT_EQ(handle.counts().rows, Alone::kTokens);
}

// A step of few tokens would take longer if it stored counts to the host's memory (decision 0126).
TEST(Handle, CountsThatStayAreCopiedUntilTheyAreThere) {
  Alone rank;
  rank.spy.isFar = true;
  Handle& handle = rank.makeHandle(moeModeLl, moeLayoutRankMajor);
  EXPECT_EQ(rank.spy.copies, 1) << "the first copy is made before any step runs";
  for (const int late : {0, 3}) {
    rank.route(handle);
    rank.spy.copies = 0;
    rank.spy.lateCopies = late;
    const moeCounts_t counts = handle.counts();
    EXPECT_EQ(counts.rows, Alone::kTokens);
    EXPECT_EQ(counts.rowsPerRank[0], Alone::kTokens);
    for (int e = 0; e < Alone::kExperts; ++e) EXPECT_EQ(counts.rowsPerExpert[e], 1);
    EXPECT_EQ(rank.spy.copies, late + 1);
  }
}

TEST(Handle, CountsThatStayAreAwaitedNoLongerThanTheTimeout) {
  Alone rank;
  rank.spy.isFar = true;
  Handle& handle = rank.makeHandle(moeModeLl, moeLayoutRankMajor);
  rank.comm().setTimeout(100);
  rank.route(handle);
  rank.spy.lateCopies = std::numeric_limits<int>::max();
  const auto begin = Clock::now();
  EXPECT_EQ(resultOf([&] { handle.counts(); }), moeTimeout);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
  rank.spy.lateCopies = 0;
  EXPECT_EQ(handle.counts().rows, Alone::kTokens) << "the counts may come later";
}

TEST(Handle, HighThroughputCountsGoToTheHost) {
  Alone rank;
  rank.spy.isFar = true;
  Handle& handle = rank.makeHandle(moeModeHt, moeLayoutFlat);
  rank.route(handle);
  EXPECT_EQ(handle.counts().rows, Alone::kTokens);
  EXPECT_EQ(rank.spy.copies, 0);
}

// The table keeps its address for graphs that use it. Without a placement it is that of the even spread.
TEST(Handle, ACapturedRouteFollowsLaterPlacements) {
  Alone rank;
  Handle& handle = rank.makeHandle(moeModeHt, moeLayoutFlat);
  std::vector<std::int32_t> logical(Alone::kExperts, 0);
  moePlacement_t placement = MOE_PLACEMENT_INITIALIZER;
  placement.logicalExperts = 1;
  placement.physicalExperts = Alone::kExperts;
  placement.logical = logical.data();
  handle.setPlacement(&placement, nullptr);
  rank.spy.captures = true;
  EXPECT_EQ(resultOf([&] { handle.setPlacement(&placement, nullptr); }), moeInvalidUsage);
  EXPECT_EQ(resultOf([&] { handle.setPlacement(nullptr, nullptr); }), moeInvalidUsage);
  rank.spy.captures = false;
  rank.route(handle);
  const Placement* table = rank.spy.latest.handle.placement;
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(table->logicalExperts, 1);
  EXPECT_NE(table->boundWord, 0u);
  handle.setPlacement(nullptr, nullptr);
  EXPECT_EQ(table->logicalExperts, Alone::kExperts);
  EXPECT_EQ(table->boundWord | table->alignmentWord, 0u);
  EXPECT_EQ(table->replicas()[Alone::kExperts - 1].first, Alone::kExperts - 1);
  rank.route(handle);
  EXPECT_EQ(rank.spy.latest.handle.placement, nullptr);
}

TEST(Handle, ALaunchThatFailsLeavesNothingOutstanding) {
  Alone rank;
  for (const int mode : {moeModeHt, moeModeLl}) {
    Handle& handle = rank.makeHandle(mode, moeLayoutFlat);
    rank.route(handle);
    moeDispatchArgs_t args = rank.dispatchArgs(rank.other());
    args.flags = moeSendOnly;
    rank.spy.launchesFail = true;
    EXPECT_EQ(resultOf([&] { moe::dispatch(handle, DispatchRequest(&args), nullptr); }), moeCudaError);
    EXPECT_EQ(resultOf([&] { handle.complete(nullptr); }), moeInvalidUsage);
    rank.spy.launchesFail = false;
    moe::dispatch(handle, DispatchRequest(&args), nullptr);
    handle.complete(nullptr);
    EXPECT_EQ(rank.comm().room().operations.freeStaging(1), 0);
  }
}

// A dispatch of moeRouteDispatch that a backend may start while its route still runs.
class Beside : public ::testing::Test {
 protected:
  Beside() { rank_.spy.overlaps = true; }

  bool runsBeside(Handle& handle, void* out, const moeCast_t* cast = nullptr) {
    moeDispatchArgs_t args = rank_.dispatchArgs(out);
    args.cast = cast;
    rank_.routeDispatch(handle, args);
    return rank_.spy.latest.dispatch.besideRoute != 0;
  }
  void* window(std::size_t bytes = std::size_t{Alone::kTokens} * 256) { return rank_.comm().allocateWindow(bytes); }
  static const CommState& stateOf(Handle& handle) { return *handle.params().comm.state; }

  Alone rank_;
};

TEST_F(Beside, OneThatFollowsARouteOfTheSameCall) {
  Handle& flat = rank_.makeHandle(moeModeHt, moeLayoutFlat);
  EXPECT_TRUE(runsBeside(flat, window()));
  EXPECT_TRUE(runsBeside(flat, rank_.other())) << "from the staging area";
  EXPECT_EQ(stateOf(flat).besideRoutes, 2u);
  const moeDispatchArgs_t args = rank_.dispatchArgs(window());
  rank_.route(flat);
  moe::dispatch(flat, DispatchRequest(&args), nullptr);
  EXPECT_EQ(rank_.spy.latest.dispatch.besideRoute, 0);
  rank_.spy.overlaps = false;
  EXPECT_FALSE(runsBeside(flat, window()));
  EXPECT_EQ(stateOf(flat).besideRoutes, 2u);
  EXPECT_EQ(flagEpoch(stateOf(flat).routePlaced), 2u);
}

TEST_F(Beside, NotOneThatTellsWhereItsExpertsBegin) {
  Handle& handle = rank_.makeHandle(moeModeHt, moeLayoutExpertMajor);
  moeCast_t cast = MOE_CAST_INITIALIZER;
  cast.type = moeCastMxfp8;
  cast.outScales = window(16384);
  EXPECT_TRUE(runsBeside(handle, window(), &cast));
  cast.scaleLayout = moeScales128x4;
  EXPECT_FALSE(runsBeside(handle, window(), &cast));
}

TEST_F(Beside, NotOneWhoseReadersMayStartWithIt) {
  EXPECT_FALSE(runsBeside(rank_.makeHandle(moeModeHt, moeLayoutExpertMajor, true), window()));
}

TEST_F(Beside, ARouteThatNoDispatchFollowsIsForgotten) {
  Handle& handle = rank_.makeHandle(moeModeHt, moeLayoutFlat);
  rank_.spy.dispatchesFail = true;
  EXPECT_EQ(resultOf([&] { runsBeside(handle, window()); }), moeCudaError);
  rank_.spy.dispatchesFail = false;
  EXPECT_EQ(stateOf(handle).besideRoutes, flagEpoch(stateOf(handle).routePlaced));
  EXPECT_TRUE(runsBeside(handle, window()));
  EXPECT_EQ(stateOf(handle).besideRoutes, flagEpoch(stateOf(handle).routePlaced));
}

TEST(Handle, OnlyACombineThatRanHasReaders) {
  Alone rank;
  Handle& handle = rank.makeHandle(moeModeLl, moeLayoutRankMajor);
  rank.route(handle);
  const moeDispatchArgs_t sent = rank.dispatchArgs(nullptr);
  moe::dispatch(handle, DispatchRequest(&sent), nullptr);
  const moeCombineArgs_t right = rank.combineArgs(handle.slots().combineRows);
  moeCombineArgs_t wrong = right;
  wrong.hidden = 7;
  EXPECT_EQ(resultOf([&] { moe::combine(handle, CombineRequest(&wrong), nullptr); }), moeInvalidArgument);
  EXPECT_FALSE(rank.comm().hasReaders());
  rank.spy.launchesFail = true;
  EXPECT_EQ(resultOf([&] { moe::combine(handle, CombineRequest(&right), nullptr); }), moeCudaError);
  EXPECT_FALSE(rank.comm().hasReaders());
  rank.spy.launchesFail = false;
  moe::combine(handle, CombineRequest(&right), nullptr);
  EXPECT_TRUE(rank.comm().hasReaders());
}

TEST(Handle, AnOutputThatReachesIntoItsNeighbourIsRefused) {
  Alone rank;
  Handle& handle = rank.makeHandle(moeModeHt, moeLayoutFlat);
  rank.route(handle);
  auto* first = static_cast<std::uint8_t*>(rank.comm().allocateWindow(Alone::kTokens * 256));
  rank.comm().allocateWindow(4096);
  moeDispatchArgs_t args = rank.dispatchArgs(first);
  EXPECT_EQ(resultOf([&] { moe::dispatch(handle, DispatchRequest(&args), nullptr); }), moeSuccess);
  args.outRowsMax = Alone::kTokens + 1;
  EXPECT_EQ(resultOf([&] { moe::dispatch(handle, DispatchRequest(&args), nullptr); }), moeInvalidArgument);
  args = rank.dispatchArgs(first + 256);
  EXPECT_EQ(resultOf([&] { moe::dispatch(handle, DispatchRequest(&args), nullptr); }), moeInvalidArgument);
  args.outRowsMax = Alone::kTokens - 1;
  rank.spy.launched.clear();
  EXPECT_NE(resultOf([&] { moe::dispatch(handle, DispatchRequest(&args), nullptr); }), moeInvalidArgument);
  EXPECT_EQ(rank.spy.launched.size(), 1u) << "what arrives does not fit, but that is for the step to say";
}

// The description of an operation that the backend gets.
class Told : public ::testing::Test {
 protected:
  bool dispatchMoves(int mode, int layout, void* out, void* scales = nullptr) {
    Handle& handle = rank_.makeHandle(mode, layout);
    rank_.route(handle);
    moeDispatchArgs_t args = rank_.dispatchArgs(out);
    if (layout == moeLayoutRankMajor && out == nullptr) args.outRowsMax = 0;
    moeCast_t cast = MOE_CAST_INITIALIZER;
    cast.type = moeCastFp8;
    cast.outScales = scales;
    if (scales != nullptr) args.cast = &cast;
    moe::dispatch(handle, DispatchRequest(&args), nullptr);
    return rank_.spy.asked.back().movesOnly;
  }
  bool combineMoves(int mode, int layout, void* rows) {
    Handle& handle = rank_.makeHandle(mode, layout);
    rank_.route(handle);
    if (mode == moeModeLl && rows == nullptr) rows = handle.slots().combineRows;
    const moeCombineArgs_t args = rank_.combineArgs(rows);
    moe::combine(handle, CombineRequest(&args), nullptr);
    return rank_.spy.asked.back().movesOnly;
  }
  void* window() { return rank_.comm().allocateWindow(Alone::kTokens * 256); }

  Alone rank_;
};

TEST_F(Told, ADispatchOnlyMovesRowsIfTheyStayWhereTheyCome) {
  EXPECT_TRUE(dispatchMoves(moeModeHt, moeLayoutFlat, window()));
  EXPECT_TRUE(dispatchMoves(moeModeHt, moeLayoutRankMajor, window()));
  EXPECT_FALSE(dispatchMoves(moeModeHt, moeLayoutFlat, rank_.other())) << "out of the staging area";
  EXPECT_FALSE(dispatchMoves(moeModeHt, moeLayoutExpertMajor, window())) << "further copies for further experts";
  EXPECT_FALSE(dispatchMoves(moeModeHt, moeLayoutFlat, window(), window())) << "cast on their way";
  EXPECT_TRUE(dispatchMoves(moeModeLl, moeLayoutRankMajor, nullptr)) << "in the slots";
  EXPECT_FALSE(dispatchMoves(moeModeLl, moeLayoutRankMajor, window())) << "out of the slots";
  EXPECT_FALSE(dispatchMoves(moeModeLl, moeLayoutRankMajor, nullptr, rank_.other())) << "the scales out of them";
}

TEST_F(Told, ACombineOnlyMovesRowsThatPeersReadWhereTheyAre) {
  EXPECT_TRUE(combineMoves(moeModeHt, moeLayoutFlat, window()));
  EXPECT_FALSE(combineMoves(moeModeHt, moeLayoutFlat, rank_.other()));
  EXPECT_FALSE(combineMoves(moeModeHt, moeLayoutExpertMajor, window())) << "sums over this rank's experts";
  EXPECT_TRUE(combineMoves(moeModeLl, moeLayoutRankMajor, nullptr));
  EXPECT_FALSE(combineMoves(moeModeLl, moeLayoutFlat, rank_.other()));
}

TEST_F(Told, BytesAreThoseOfTheCallsTokens) {
  Handle& handle = rank_.makeHandle(moeModeHt, moeLayoutFlat);
  rank_.route(handle);
  moeDispatchArgs_t args = rank_.dispatchArgs(window());
  args.sms = 5;
  moe::dispatch(handle, DispatchRequest(&args), nullptr);
  EXPECT_EQ(rank_.spy.asked.back().bytes, Alone::kTokens * 256);
  EXPECT_EQ(rank_.spy.asked.back().sms, 5);
  moe::route(handle, {nullptr, nullptr, 0}, nullptr);
  moe::dispatch(handle, DispatchRequest(&args), nullptr);
  EXPECT_EQ(rank_.spy.asked.back().bytes, 0);
}

}  // namespace
}  // namespace moe::test
