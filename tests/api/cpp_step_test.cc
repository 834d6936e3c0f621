// Steps of an MoE layer through moecomm.hpp, verified on every rank: layouts, modes, split phases, casts, opaque rows.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>

#include "support/api/cpp_world.h"

namespace moe::test {

// A user-defined row type.
struct CppBfloat16 {
  std::uint16_t bits;
};

}  // namespace moe::test

template <>
struct moecomm::RowType<moe::test::CppBfloat16> {
  static constexpr std::int32_t value = moeRowBf16;
};

namespace moe::test {
namespace {

constexpr int kCppRanks = 4, kCppTopk = 3, kCppHidden = 16, kCppExperts = 10;

static_assert(moecomm::RowType<__half>::value == moeRowFp16 && moecomm::RowType<__nv_bfloat16>::value == moeRowBf16);
static_assert(moecomm::RowType<std::uint8_t>::value == moeRowBytes);

// One rank's part of a step whose results are small integers, so that sums are exact in every order.
template <class Index>
class CppStep {
 public:
  CppStep(const moecomm::Communicator& comm, int mode, int layout)
      : rank_(comm.info().rank), perExpert_(layout == moeLayoutExpertMajor || layout == moeLayoutExpertMajorPadded) {
    moecomm::HandleConfig shape(kCppExperts, kCppTopk);
    shape.mode = mode;
    shape.layout = layout;
    shape.tokensMax = 8;
    shape.indexType = sizeof(Index) == 8 ? moeIndexInt64 : moeIndexInt32;
    handle = moecomm::Handle(comm, shape);
    EXPECT_EQ(handle.mode(), mode);
    EXPECT_EQ(handle.tokensMax(), 8);
    arrived.resize(kCppRanks * 8 * kCppTopk * kCppHidden);
  }

  void prepare(int iteration) {
    const int tokens = (rank_ + iteration) % 3 == 2 ? 0 : 5 + rank_ % 3;
    topk.clear(), weights.clear(), rows.clear(), wanted_.clear();
    bias.assign(static_cast<std::size_t>(tokens * kCppHidden), 100.0f);
    sums.assign(bias.size(), -1.0f);
    for (int t = 0; t < tokens; ++t) prepareToken(t, iteration);
  }

  void runExperts() {
    const moeCounts_t counts = handle.counts();
    const moeDeviceCounts_t device = handle.deviceCounts();
    for (int e = 0; perExpert_ && e < counts.localExperts; ++e) {
      const bool padded = counts.layoutRows != device.expertOffsets[counts.localExperts];
      const int begin = padded ? e * counts.layoutRows / counts.localExperts : device.expertOffsets[e];
      multiply(begin, counts.rowsPerExpert[e], static_cast<float>(counts.firstExpert + e + 1));
    }
    if (!perExpert_) multiply(0, counts.layoutRows, 2);
  }

  moecomm::DispatchArgs dispatchArgs() { return {rows, arrived, kCppHidden}; }
  moecomm::CombineArgs combineArgs() {
    moecomm::CombineArgs args(arrived, sums, kCppHidden);
    args.weights = perExpert_ ? moeWeightsApply : moeWeightsApplied;
    args.setBias0(bias);
    return args;
  }
  void check() const { EXPECT_EQ(sums, wanted_); }

  moecomm::Handle handle;
  std::vector<Index> topk;
  std::vector<float> weights, rows, arrived, bias, sums;

 private:
  void prepareToken(int t, int iteration) {
    float factor = 0;
    std::set<int> ranks;
    for (int k = 0; k < kCppTopk; ++k) {
      const int expert = (rank_ + 3 * t + k * (1 + iteration % 3)) % kCppExperts;
      topk.push_back(static_cast<Index>(expert));
      weights.push_back(static_cast<float>(k + 1));
      factor += static_cast<float>((expert + 1) * (k + 1));
      ranks.insert(expert < 6 ? expert / 3 : 2 + (expert - 6) / 2);  // 10 experts of 4 ranks: 3, 3, 2, 2
    }
    if (!perExpert_) factor = 2 * static_cast<float>(ranks.size());
    for (int i = 0; i < kCppHidden; ++i) {
      rows.push_back(static_cast<float>(64 * rank_ + 8 * t + i % 5));
      wanted_.push_back(100 + factor * rows.back());
    }
  }
  void multiply(int begin, int count, float factor) {
    float* row = arrived.data() + static_cast<std::ptrdiff_t>(begin) * kCppHidden;
    for (int i = 0; i < count * kCppHidden; ++i) row[i] *= factor;
  }

  int rank_;
  bool perExpert_;
  std::vector<float> wanted_;
};

template <class Index>
void runCppSteps(int mode, int layout) {
  cppWorld(kCppRanks, cppConfig(), [&](moecomm::Communicator& comm, int) {
    CppStep<Index> step(comm, mode, layout);
    for (int i = 0; i < 4; ++i) {
      step.prepare(i);
      if (i % 2 == 0) {
        step.handle.route({step.topk, step.weights});
        step.handle.dispatch(step.dispatchArgs());
      } else {
        step.handle.routeDispatch({step.topk, step.weights}, step.dispatchArgs());
      }
      step.runExperts();
      step.handle.combine(step.combineArgs());
      step.check();
      EXPECT_TRUE(step.handle.status().ok()) << step.handle.status().sentence;
    }
  });
}

TEST(CppStep, IsRightInEveryLayoutAndMode) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      SCOPED_TRACE(std::to_string(mode) + " " + std::to_string(layout));
      runCppSteps<std::int32_t>(mode, layout);
      runCppSteps<std::int64_t>(mode, layout);
    }
  }
}

TEST(CppStep, IsRightInTwoPhases) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    cppWorld(kCppRanks, cppConfig(), [&](moecomm::Communicator& comm, int) {
      CppStep<std::int32_t> step(comm, mode, moeLayoutExpertMajor);
      for (int i = 0; i < 3; ++i) {
        step.prepare(i);
        step.handle.route({step.topk, step.weights});
        moecomm::Pending dispatch = step.handle.startDispatch(step.dispatchArgs());
        expectError(moeInvalidUsage, "awaits moeComplete", [&] { step.handle.combine(step.combineArgs()); });
        moecomm::Pending moved = std::move(dispatch);
        moecomm::Handle elsewhere = std::move(step.handle);  // an operation outlives moves of its handle
        moved.complete();
        expectError(moeInvalidUsage, "not outstanding", [&] { moved.complete(); });
        step.handle = std::move(elsewhere);
        step.runExperts();
        step.handle.startCombine(step.combineArgs()).complete();
        step.check();
      }
    });
  }
}

TEST(CppStep, AHandleEndsWhatAPendingLeaves) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    cppWorld(kCppRanks, cppConfig(), [&](moecomm::Communicator& comm, int) {
      CppStep<std::int32_t> step(comm, mode, moeLayoutExpertMajor);
      step.prepare(4);
      {
        const moecomm::Pending dropped = step.handle.startRouteDispatch({step.topk, step.weights}, step.dispatchArgs());
      }
      expectError(moeInvalidUsage, "awaits moeComplete", [&] { step.handle.dispatch(step.dispatchArgs()); });
      step.handle.complete();
      moecomm::Pending earlier = step.handle.startDispatch(step.dispatchArgs());
      step.handle.complete();
      expectError(moeInvalidUsage, "not outstanding", [&] { earlier.complete(); });
      moecomm::Pending later = step.handle.startDispatch(step.dispatchArgs());
      expectError(moeInvalidUsage, "not outstanding", [&] { earlier.complete(); });
      later.complete();
      step.runExperts();
      moecomm::CombineArgs combine = step.combineArgs();
      combine.flags = moeSendOnly;
      step.handle.combine(combine);
      step.handle.complete();
      step.check();
      moecomm::Pending late = step.handle.startDispatch(step.dispatchArgs());
      step.handle.destroy();
      expectError(moeInvalidUsage, "not outstanding", [&] { late.complete(); });
    });
  }
}

TEST(CppStep, GetsItsOutputsWhenItsCountsAreKnown) {
  cppWorld(kCppRanks, cppConfig(), [&](moecomm::Communicator& comm, int) {
    CppStep<std::int32_t> step(comm, moeModeHt, moeLayoutExpertMajor);
    for (int i = 0; i < 3; ++i) {
      step.prepare(i);
      moecomm::DispatchArgs sent = step.dispatchArgs();
      sent.flags = moeOutputsLater;
      moecomm::Pending dispatch = step.handle.startRouteDispatch({step.topk, step.weights}, sent);
      moecomm::DispatchArgs little = step.dispatchArgs();
      little.outRowsMax = step.handle.counts().layoutRows - 1;
      expectError(moeInvalidArgument, "args.outRowsMax is ", [&] { dispatch.complete(little); });
      dispatch.complete(step.dispatchArgs());
      expectError(moeInvalidUsage, "not outstanding", [&] { dispatch.complete(step.dispatchArgs()); });
      step.runExperts();
      step.handle.combine(step.combineArgs());
      step.check();
    }
  });
}

TEST(CppStep, CarriesPlainStructsAndPlainAddresses) {
  cppWorld(2, cppConfig(), [](moecomm::Communicator& comm, int rank) {
    moecomm::Handle handle(comm, moecomm::HandleConfig(2, 1));
    const std::int32_t other = 1 - rank;
    const std::array<float, 4> row = {1, 2, 3, static_cast<float>(rank)};
    std::array<float, 8> arrived = {};
    moeDispatchArgs_t args = MOE_DISPATCH_ARGS_INITIALIZER;
    args.rows = row.data();
    args.rowType = moeRowFp32;
    args.hidden = 4;
    args.outRows = arrived.data();
    args.outRowsMax = 2;
    handle.route({&other, nullptr, 1});
    handle.dispatch(args);
    EXPECT_EQ(arrived[3], static_cast<float>(other));
    arrived.fill(0);
    handle.routeDispatch({&other, nullptr, 1}, args);
    EXPECT_EQ(arrived[3], static_cast<float>(other));
    EXPECT_EQ(handle.counts().rows, 1);
  });
}

TEST(CppStep, CarriesOpaqueRowsAndASidePayload) {
  cppWorld(2, cppConfig(), [](moecomm::Communicator& comm, int rank) {
    moecomm::Handle handle(comm, moecomm::HandleConfig(2, 1));
    const auto other = static_cast<std::int32_t>(1 - rank);
    const std::vector<std::int32_t> topk = {other};
    const std::vector<std::uint64_t> row = {7, static_cast<std::uint64_t>(rank), 9, 11};
    const std::vector<std::int32_t> side = {rank, 5, 6, 7};
    std::vector<std::uint64_t> arrived(2 * row.size());
    std::vector<std::int32_t> arrivedSide(2 * side.size()), from(2), topkHere(2);
    moecomm::DispatchArgs args(row, arrived, 4);
    EXPECT_EQ(args.hidden, 32) << "bytes";
    EXPECT_EQ(args.outRowsMax, 2);
    args.setPayload(side, arrivedSide, 16);
    args.setOutSourceIndex(from);
    args.setOutTopkIdx(moecomm::Span(topkHere));
    handle.routeDispatch({topk}, args);
    EXPECT_EQ(arrived[1], static_cast<std::uint64_t>(other));
    EXPECT_EQ(arrivedSide[0], other);
    EXPECT_EQ(from[0], other * handle.tokensMax());
    EXPECT_EQ(topkHere[0], 0);
  });
}

TEST(CppStep, CastsOnTheWayAndSumsAUsersType) {
  cppWorld(2, cppConfig(), [](moecomm::Communicator& comm, int rank) {
    moecomm::HandleConfig shape(2, 1);
    shape.mode = moeModeLl;
    moecomm::Handle handle(comm, shape);
    const std::vector<std::int32_t> topk = {1 - rank};
    const std::vector<CppBfloat16> row(128, CppBfloat16{0x4000});  // 2.0
    std::vector<std::uint8_t> codes(2 * 128);
    std::vector<float> scales(2);
    moecomm::DispatchArgs args;
    args.setCastRows(moeCastFp8, row, codes, scales, 128);
    EXPECT_EQ(args.rowType, moeRowBf16);
    handle.routeDispatch({topk}, args);
    EXPECT_EQ(codes[5], 0x7e) << "448, the largest code";
    EXPECT_FLOAT_EQ(scales[0], 2.0f / 448);
    std::vector<CppBfloat16> arrived(2 * 128), sums(128);
    handle.dispatch({row, arrived, 128});
    handle.combine({arrived, sums, 128});
    EXPECT_EQ(sums[127].bits, 0x4000);
  });
}

TEST(CppStep, KnowsHowManyScalesACastMakes) {
  cppWorld(1, cppConfig(), [](moecomm::Communicator& comm, int) {
    moecomm::HandleConfig shape(1, 1, moeLayoutRankMajor);
    shape.mode = moeModeLl;
    shape.tokensMax = 2;
    moecomm::Handle handle(comm, shape);
    handle.route({std::vector<std::int32_t>{0}});
    const std::vector<CppBfloat16> row(512, CppBfloat16{0x4000});
    std::vector<std::uint8_t> codes(2 * 512);
    std::vector<std::uint32_t> scales(7);
    moecomm::DispatchArgs args;
    args.setCastRows(moeCastFp8, row, codes, scales, 512);
    expectError(moeInvalidArgument, "args.cast.outScales has 7 elements, must have [outRows][words] = [2][4]",
                [&] { handle.dispatch(args); });
    args.setCastRows(moeCastFp8, row, moecomm::Span<std::uint8_t>(), scales, 512);
    expectError(moeInvalidArgument, "= [2][4]", [&] { handle.dispatch(args); });
    args.setCastRows(moeCastNvfp4, row, codes, scales, 512);
    expectError(moeInvalidArgument, "args.cast.outScales has 7 elements, must have [outRows][words] = [4][8]",
                [&] { handle.dispatch(args); });
    std::vector<std::uint32_t> bytes(2 * 8);
    args.setCastRows(moeCastNvfp4, row, moecomm::Span(codes).first(511), bytes, 512);
    args.padding = moePadRows;
    expectError(moeInvalidArgument, "args.outRows has 511 elements, must have [outRows][hidden / 2] = [2][256]",
                [&] { handle.dispatch(args); });
    args.setCastRows(moeCastNvfp4, row, moecomm::Span(codes).first(512), bytes, 512);
    handle.dispatch(args);
    EXPECT_EQ(codes[0], 0x77) << "6 twice";
    EXPECT_EQ(bytes[0], 0x2b2b2b2bu) << "2 / 6 as e4m3";
    args.setCastRows(moeCastFp8Ue8m0, row, codes, moecomm::Span(scales).first(1), 512);
    expectError(moeInvalidArgument, "= [2][1]", [&] { handle.dispatch(args); });
    args.setCastRows(moeCastFp8Ue8m0, row, codes, moecomm::Span(scales).first(2), 512);
    handle.dispatch(args);
    EXPECT_EQ(scales[0] & 0xff, scales[0] >> 24) << "four blocks alike";
    EXPECT_NE(scales[0], 0u);
  });
}

// Rows that stay in their slots, and results that are written where peers read them.
TEST(CppStep, NeedsNoOutputWithRankMajorSlots) {
  cppWorld(2, cppConfig(), [](moecomm::Communicator& comm, int rank) {
    moecomm::HandleConfig shape(2, 1, moeLayoutRankMajor);
    shape.mode = moeModeLl;
    shape.tokensMax = 1;
    moecomm::Handle handle(comm, shape);
    const std::vector<std::int32_t> topk = {1 - rank};
    const std::vector<float> row(4, static_cast<float>(rank + 5));
    std::vector<std::int32_t> from(2), few(1);
    std::vector<float> sums(4);
    moecomm::DispatchArgs args(row, moecomm::Span<float>(), 4);
    args.setOutSourceIndex(few);
    expectError(moeInvalidArgument, "args.describe.outSourceIndex has 1 elements, must have [outRows] = [2]",
                [&] { handle.routeDispatch({topk}, args); });
    args.setOutSourceIndex(from);
    handle.routeDispatch({topk}, args);
    EXPECT_EQ(from[static_cast<std::size_t>(1 - rank)], 1 - rank);
    const moeHandleView_t view = handle.view();
    const moecomm::Span results(static_cast<float*>(view.combineRows), 2 * 4);
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t at = static_cast<std::size_t>(1 - rank) * 4 + i;
      results.data()[at] = 10 * static_cast<const float*>(view.rows)[at];
    }
    handle.combine({results, sums, 4});
    EXPECT_EQ(sums[3], static_cast<float>(10 * (rank + 5)));
  });
}

TEST(CppStep, QueriesOfAHandleAnswer) {
  cppWorld(2, cppConfig(), [](moecomm::Communicator& comm, int rank) {
    moecomm::HandleConfig shape(2, 1, moeLayoutExpertMajor);
    shape.arrivals = shape.statistics = 1;
    moecomm::Handle handle(comm, shape);
    const std::vector<std::int32_t> topk = {1, 1, 0};
    const std::vector<float> rows(3 * 4, 1.0f);
    std::vector<float> arrived(6 * 4);
    std::vector<std::int32_t> perExpert(1), offsets(2);
    std::vector<std::int64_t> waits(2);
    moecomm::DispatchArgs args(rows, arrived, 4);
    args.setOutExpertOffsets(offsets);
    args.setCumulativeRows(perExpert);
    args.setCumulativeWaitNs(waits);
    handle.routeDispatch({topk}, args);
    const std::int32_t came = rank == 0 ? 2 : 4;
    EXPECT_EQ(handle.counts().rows, came);
    EXPECT_EQ(*handle.deviceCounts().rows, came);
    EXPECT_EQ(handle.statistics().rowsPerExpert[0], came);
    EXPECT_EQ(perExpert[0], came);
    EXPECT_EQ(offsets[1], came);
    EXPECT_EQ(handle.arrivals().words[0] >> MOE_ARRIVAL_SHIFT, 1u);
  });
}

TEST(CppStep, ALayoutIsCountedWithoutACommunicator) {
  std::vector<std::int32_t> perRank(2), perExpert(4);
  moeDispatchLayout_t layout = MOE_DISPATCH_LAYOUT_INITIALIZER;
  layout.backend = moeBackendHost;
  layout.topk = layout.nranks = 2;
  layout.experts = 4;
  layout.tokensPerRank = perRank.data();
  layout.tokensPerExpert = perExpert.data();
  moecomm::countLayout({std::vector<std::int64_t>{0, 3, 1, -1}}, layout);
  EXPECT_EQ(perRank, (std::vector<std::int32_t>{2, 1}));
  EXPECT_EQ(perExpert, (std::vector<std::int32_t>{1, 1, 0, 1}));
  moecomm::countLayout({std::vector<std::int32_t>{2, 2}}, layout);
  EXPECT_EQ(perRank, (std::vector<std::int32_t>{0, 1}));
  expectError(moeInvalidArgument, "topkIdx has 3 elements", [&] {
    moecomm::countLayout({std::vector<std::int32_t>{0, 1, 2}}, layout);
  });
  layout.topk = 0;
  expectError(moeInvalidArgument, "layout.topk is 0",
              [&] { moecomm::countLayout({std::vector<std::int32_t>{0}}, layout); });
}

TEST(CppStep, FaultsAreAskedForAndEndNothing) {
  cppWorld(2, cppConfig(), [](moecomm::Communicator& comm, int rank) {
    moecomm::Handle handle(comm, moecomm::HandleConfig(2, 1));
    std::vector<std::int32_t> topk = {rank == 1 ? 77 : 0};
    const std::vector<float> row(4, 3.0f);
    std::vector<float> arrived(8), sums(4, 1.0f);
    handle.routeDispatch({topk}, {row, arrived, 4});
    const moecomm::HandleStatus status = handle.status();
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.rank, 1);
    expectError(moeInvalidArgument, "77", [&] { status.require(); });
    handle.combine({arrived, sums, 4});
    EXPECT_EQ(sums[0], 0);
    EXPECT_EQ(comm.asyncError(), moeSuccess);
    topk[0] = rank;
    handle.routeDispatch({topk}, {row, arrived, 4});
    EXPECT_TRUE(handle.status().ok());
    handle.status().require();
    handle.combine({arrived, sums, 4});
    EXPECT_EQ(sums[0], 3);
  });
}

// In shapes nranks is 1, so arrays for one rank do.
TEST(CppStep, HandlesOfThisRankAloneHaveArraysForOneRank) {
  cppWorld(2, cppConfig(), [](moecomm::Communicator& comm, int rank) {
    moecomm::HandleConfig shape(3, 2, moeLayoutExpertMajorPadded);
    shape.localOnly = 1;
    shape.tokensMax = 2;
    moecomm::Handle handle(comm, shape);
    const std::vector<std::int32_t> topk = {0, 2, 1, -1};
    const std::vector<float> rows(2 * 4, 3.0f);
    const int experts = rank == 0 ? 2 : 1;
    std::vector<float> arrived(static_cast<std::size_t>(experts * 2 * 4)), sums(2 * 4);
    std::vector<std::int64_t> ranges(static_cast<std::size_t>(experts)), waits(1);
    moecomm::DispatchArgs args(rows, arrived, 4);
    args.setOutLayoutRange(ranges);
    args.setCumulativeWaitNs(waits);
    handle.routeDispatch({topk}, args);
    EXPECT_EQ(handle.counts().rows, rank == 0 ? 2 : 1);
    EXPECT_EQ(handle.counts().firstExpert, rank == 0 ? 0 : 2);
    EXPECT_EQ(ranges[0], 1);
    handle.combine({arrived, sums, 4});
    EXPECT_EQ(sums[0], 3);
    EXPECT_EQ(sums[4], rank == 0 ? 3 : 0);
  });
}

}  // namespace
}  // namespace moe::test
