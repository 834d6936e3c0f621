// Handles of only this rank's experts (moeHandleConfig_t.localOnly). All ranks have the same tokens, and no rank waits.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <set>

#include "device/view/shape.h"
#include "support/api/refusal_calls.h"

namespace moe::test {
namespace {

class LocalOnly : public Refusal {};

// The step of one rank among `nranks`. The reference treats it as a world of one rank.
StepCase ownCase(int mode, int layout, int rank, int nranks, int allExperts) {
  const ExpertMap map(allExperts, nranks);
  StepCase c;
  c.mode = mode;
  c.layout = layout;
  c.describes = true;
  c.allExperts = allExperts;
  c.experts = map.count(rank);
  c.firstOwn = map.first(rank);
  c.topk = 4;
  c.tokensMax = 11;
  c.alignment = layout == moeLayoutExpertMajor ? 4 : 1;
  c.weighted = layout == moeLayoutExpertMajor;
  c.lateWeights = c.weighted && mode == moeModeHt;
  c.weightGrads = layout % 2 == 0;
  c.wideIndex = hasRowPerExpert(static_cast<Layout>(layout));
  c.biases = layout % 3;
  c.idKind = layout % 2 == 0 ? moeIdsGlobal : moeIdsLocal;
  c.padding = moePadIndices | moePadRows;
  c.arrivals = layout == moeLayoutExpertMajorPadded || (layout == moeLayoutExpertMajor && mode == moeModeHt);
  c.expertCounts = layout == moeLayoutRankMajor;
  c.rowsBudget = layout == moeLayoutFlat ? 7 : 0;
  c.sideBytes = layout == moeLayoutRankMajor ? 32 : 0;
  c.window = mode == moeModeHt;
  c.seed = static_cast<std::uint64_t>(860 + 10 * mode + layout);
  return c;
}

// Ranks make different numbers of steps.
void ownSteps(RankContext& context, const StepCase& c, int steps) {
  std::barrier<> alone(1);
  RankContext own{0, 1, context.comm, context.arena, alone};
  MoeStep step(own, c);
  for (int i = 0; i < steps; ++i) {
    step.prepare(i);
    if (i % 2 == 0) {
      step.route();
      step.dispatch(i % 3 == 0 ? moeSendOnly : 0);
      if (i % 3 == 0) step.complete();
    } else {
      step.routeDispatch();
    }
    step.checkDispatch();
    step.runExperts();
    const bool parted = i % 3 == 1 && !c.arrivals;  // complete() looks at arrival words, whose rows are used by now
    step.combine(parted ? moeSendOnly : 0);
    if (parted) step.complete();
    step.checkCombine();
  }
}

TEST_P(LocalOnly, TakesThisRanksEntriesInEveryLayoutAndMode) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(3, config(), [&](RankContext& context) {
        const StepCase c = ownCase(mode, layout, context.rank, context.nranks, 11);
        SCOPED_TRACE(c.name());
        ownSteps(context, c, 4 + 3 * context.rank);
      });
    }
  }
}

TEST_P(LocalOnly, CastsAndCodesRowsAsOthersDo) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (int layout = moeLayoutFlat; layout <= moeLayoutRankMajor; ++layout) {
      world(2, config(), [&](RankContext& context) {
        StepCase c = ownCase(mode, layout, context.rank, context.nranks, 7);
        c.hidden = 256;
        c.cast = layout % 2 == 0 ? moeCastFp8 : moeCastMxfp8;
        c.expertCounts = false;
        c.scales = layout == moeLayoutExpertMajor ? moeScales128x4 : moeScalesTokenContiguous;
        SCOPED_TRACE(c.name());
        std::barrier<> alone(1);
        RankContext own{0, 1, context.comm, context.arena, alone};
        MoeStep step(own, c);
        for (int i = 0; i < 3 + context.rank; ++i) {
          step.prepare(i);
          step.route();
          step.dispatch();
          step.checkDispatch();
        }
      });
    }
  }
}

// A token's experts, with entries that are not used, the same on all ranks.
std::vector<std::int32_t> sameIds(int tokens, int topk, int experts) {
  Rng rng(86);
  std::vector<std::int32_t> ids;
  for (int t = 0; t < tokens; ++t) {
    const int first = rng.below(experts);
    for (int k = 0; k < topk; ++k) ids.push_back(rng.oneIn(5) ? -1 : (first + k) % experts);
  }
  return ids;
}

constexpr struct { int experts, topk, tokens, hidden; } kSums{10, 4, 12, 8};

moeHandleConfig_t sumHandle(int mode, int layout, bool localOnly) {
  moeHandleConfig_t shape = MOE_HANDLE_CONFIG_INITIALIZER;
  shape.experts = kSums.experts;
  shape.topk = kSums.topk;
  shape.tokensMax = kSums.tokens;
  shape.mode = mode;
  shape.layout = layout;
  shape.localOnly = localOnly ? 1 : 0;
  return shape;
}

// The result of one handle for the same tokens, with experts that triple. Rows and weights are small whole numbers.
std::vector<float> sumsOf(RankContext& context, moeHandle_t handle, int rowsMax, int weights) {
  const auto count = static_cast<std::size_t>(kSums.tokens * kSums.hidden);
  std::vector<float> rows(count), given(static_cast<std::size_t>(kSums.tokens * kSums.topk));
  for (std::size_t i = 0; i < count; ++i) rows[i] = static_cast<float>(i % 17);
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = static_cast<float>(1 + i % 3);
  Arena& arena = context.arena;
  const auto* ids = arena.put<std::int32_t>(sameIds(kSums.tokens, kSums.topk, kSums.experts));
  auto* arrived = static_cast<float*>(arena.take(static_cast<std::size_t>(rowsMax * kSums.hidden) * 4));
  auto* sums = static_cast<float*>(arena.take(count * 4));
  moeDispatchArgs_t sending = MOE_DISPATCH_ARGS_INITIALIZER;
  sending.rows = arena.put<float>(rows);
  sending.rowType = moeRowFp32;
  sending.hidden = kSums.hidden;
  sending.outRows = arrived;
  sending.outRowsMax = rowsMax;
  sending.padding = moePadRows;
  MOE_EXPECT_OK(moeRouteDispatch(handle, ids, arena.put<float>(given), kSums.tokens, &sending, context.stream()),
                context);
  std::vector<float> made = arena.get(arrived, static_cast<std::size_t>(rowsMax * kSums.hidden));
  for (float& value : made) value *= 3;
  arena.upload(arrived, made.data(), made.size() * 4);
  moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
  combine.rows = arrived;
  combine.rowType = moeRowFp32;
  combine.hidden = kSums.hidden;
  combine.weights = weights;
  combine.out = sums;
  MOE_EXPECT_OK(moeCombine(handle, &combine, context.stream()), context);
  return arena.get(sums, count);
}

// Runs between the steps of an ordinary handle, on its stream, so epochs of the two must be separate.
TEST_P(LocalOnly, SumsOfAllRanksAreThoseOfAnOrdinaryHandle) {
  constexpr int kRanks = 3, kSteps = 3;
  for (const int mode : {moeModeHt, moeModeLl}) {
    for (const int layout : {moeLayoutExpertMajor, moeLayoutExpertMajorPadded, moeLayoutFlat, moeLayoutRankMajor}) {
      SCOPED_TRACE("mode " + std::to_string(mode) + " layout " + std::to_string(layout));
      std::vector<std::vector<float>> parts(kRanks), wholes(kRanks);
      world(kRanks, config(), [&](RankContext& context) {
        moeHandle_t local = nullptr, ordinary = nullptr;
        const moeHandleConfig_t alone = sumHandle(mode, layout, true), shared = sumHandle(mode, layout, false);
        if (context.rank != 1) {
          MOE_ASSERT_OK(moeHandleCreate(&local, context.comm, &alone), context);
        }
        MOE_ASSERT_OK(moeHandleCreate(&ordinary, context.comm, &shared), context);
        if (context.rank == 1) {
          MOE_ASSERT_OK(moeHandleCreate(&local, context.comm, &alone), context);
        }
        const int each = hasRowPerExpert(static_cast<Layout>(layout)) ? 4 : 1;  // local experts, at most
        const int weights = each == 4 ? moeWeightsApply : moeWeightsApplied;
        const auto at = static_cast<std::size_t>(context.rank);
        for (int step = 0; step < kSteps; ++step) {
          for (int i = 0; i <= step * context.rank; ++i) {
            parts[at] = sumsOf(context, local, kSums.tokens * each, weights);
          }
          wholes[at] = sumsOf(context, ordinary, kRanks * kSums.tokens * each, weights);
        }
      });
      std::vector<float> all(parts[0].size());
      for (const std::vector<float>& part : parts) {
        std::transform(all.begin(), all.end(), part.begin(), all.begin(), std::plus<>());
      }
      EXPECT_NE(all, std::vector<float>(all.size()));
      for (const std::vector<float>& whole : wholes) EXPECT_EQ(whole, all);
    }
  }
}

// Fewer experts than ranks: one rank has none.
TEST_P(LocalOnly, ARankWithoutExpertsHasNoRowsAndSumsOfZero) {
  inEveryLayout([&](moeHandleConfig_t shape) {
    shape.experts = 1;
    shape.topk = 1;
    shape.localOnly = 1;
    world(2, small(), [&](RankContext& context) {
      moeHandle_t handle = nullptr;
      MOE_ASSERT_OK(moeHandleCreate(&handle, context.comm, &shape), context);
      const auto* ids = context.arena.put<std::int32_t>(std::vector<std::int32_t>{0, -1});
      moeDispatchArgs_t sending = MOE_DISPATCH_ARGS_INITIALIZER;
      sending.rows = context.arena.put<float>(std::vector<float>(2 * kHidden, 1.0f));
      sending.rowType = moeRowFp32;
      sending.hidden = kHidden;
      sending.outRows = context.arena.take(8 * kRowBytes);
      sending.outRowsMax = 8;
      MOE_EXPECT_OK(moeRoute(handle, ids, nullptr, 2, context.stream()), context);
      MOE_EXPECT_OK(moeDispatch(handle, &sending, context.stream()), context);
      moeCounts_t counts = MOE_COUNTS_INITIALIZER;
      context.arena.synchronize();
      MOE_EXPECT_OK(moeHandleGetCounts(handle, &counts), context);
      const int own = context.rank == 0 ? 1 : 0;
      EXPECT_EQ(std::pair(counts.localExperts, counts.rows), std::pair(own, own));
      moeCombineArgs_t combine = MOE_COMBINE_ARGS_INITIALIZER;
      combine.rows = sending.outRows;
      combine.rowType = moeRowFp32;
      combine.hidden = kHidden;
      combine.out = context.arena.take(2 * kRowBytes);
      MOE_EXPECT_OK(moeCombine(handle, &combine, context.stream()), context);
      std::vector<float> expected(2 * kHidden, 0.0f);
      std::fill_n(expected.begin(), kHidden, static_cast<float>(own));
      EXPECT_EQ(context.arena.get(static_cast<float*>(combine.out), expected.size()), expected);
    });
  });
}

// An id that no rank has is a fault, which names the communicator's rank. An own expert that a token names twice is a
// fault too. A foreign expert that a token names twice is unused twice.
TEST_P(LocalOnly, IdsOutOfRangeAreNamedWithTheirRank) {
  inEveryLayout([&](moeHandleConfig_t shape) {
    shape.localOnly = 1;
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      const std::string rank = std::to_string(context.rank);
      std::vector<std::int32_t> ids = calls.ids();
      ids[5] = 4;
      MOE_EXPECT_OK(calls.routeBy(ids), context);
      calls.expectStatus(moeInvalidArgument,
                         "rank " + rank + ": moeRoute: topkIdx[token 2][1] of rank " + rank + " is 4, not -1..3");
      MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
      MOE_EXPECT_OK(calls.combine(calls.combineArgs()), context);
      calls.expectSums(0.0f);
      moeHandleStatus_t status = MOE_HANDLE_STATUS_INITIALIZER;
      moeHandleGetStatus(calls.handle(), &status);
      EXPECT_EQ(status.rank, context.rank);
      ids = calls.ids();
      ids[4] = ids[5] = 3;  // of rank 1
      MOE_EXPECT_OK(calls.routeBy(ids), context);
      calls.expectStatus(context.rank == 1 ? moeInvalidArgument : moeSuccess,
                         context.rank == 1 ? "topkIdx[token 2][1] of rank 1 is 3, which an earlier entry" : "");
      MOE_EXPECT_OK(calls.route(), context);
      calls.roundTrip(1.0f);
      calls.expectStatus(moeSuccess, "");
      DispatchFields sending = calls.dispatchArgs();
      sending.outRowsMax = 1;
      if (shape.mode == moeModeHt) {
        MOE_EXPECT_OK(calls.dispatch(sending), context);
        calls.expectStatus(moeInvalidArgument, "the output of rank " + rank + " holds 1 rows but ");
      }
    });
  });
}

TEST_P(LocalOnly, ArgumentsThatCannotBeAreRefused) {
  world(2, small(), [](RankContext& context) {
    moeHandle_t handle = nullptr;
    moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
    shape.localOnly = 2;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &shape), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.localOnly is 2, must be 0..1"));
    shape.localOnly = 1;
    shape.experts = 65;
    EXPECT_EQ(moeHandleCreate(&handle, context.comm, &shape), moeInvalidArgument);
    EXPECT_TRUE(says(context.error(), "config.experts is 65"));
    shape.experts = 4;
    Calls calls(context, shape);
    const std::vector<std::int32_t> logical = {0, 1, 2, 0};
    moePlacement_t placement = MOE_PLACEMENT_INITIALIZER;
    placement.logicalExperts = 3;
    placement.physicalExperts = 4;
    placement.logical = logical.data();
    for (const moePlacement_t* given : {static_cast<const moePlacement_t*>(&placement), {}}) {
      EXPECT_EQ(moeHandleSetPlacement(calls.handle(), given, context.stream()), moeInvalidUsage);
      EXPECT_TRUE(says(context.error(), "moeHandleSetPlacement: the handle was made with config.localOnly"));
    }
    MOE_EXPECT_OK(calls.route(), context);
    calls.roundTrip(1.0f);
  });
}

// Rank 1 makes no such handle, and makes the ordinary one late. Rank 0 is done by then.
TEST_P(LocalOnly, NobodyWaitsForARankThatNeverCalls) {
  inEveryLayout([&](moeHandleConfig_t shape) {
    world(2, small(), [&](RankContext& context) {
      Calls ordinary(context, shape);
      context.meet();
      if (context.rank == 0) {
        moeHandleConfig_t alone = shape;
        alone.localOnly = 1;
        Calls local(context, alone);
        for (int i = 0; i < 20; ++i) {
          MOE_EXPECT_OK(local.route(), context);
          local.roundTrip(1.0f);
        }
        local.expectStatus(moeSuccess, "");
      }
      context.meet();  // rank 1 has called nothing until here
      ordinary.wholeStep();
    });
  });
}

// A handle with localOnly belongs to the communicator: it fails with the communicator, and is freed with it.
TEST_P(LocalOnly, EndsWithItsCommunicator) {
  inEveryLayout([&](moeHandleConfig_t shape) {
    shape.localOnly = 1;
    world(2, small(), [&](RankContext& context) {
      Calls calls(context, shape);
      MOE_EXPECT_OK(calls.route(), context);
      calls.roundTrip(1.0f);
      DispatchFields sending = calls.dispatchArgs();
      sending.flags = moeSendOnly;
      MOE_EXPECT_OK(calls.dispatch(sending), context);
      context.meet();
      if (context.rank == 0) {
        MOE_EXPECT_OK(moeCommAbort(context.comm), context);
      }
      expectFailure(context, moeAborted, "rank 0: moeCommAbort was called");
      EXPECT_EQ(calls.route(), moeAborted);
      EXPECT_EQ(moeComplete(calls.handle(), context.stream()), moeAborted);
      context.meet();  // the world destroys the communicators, with the handles and an operation that is outstanding
    });
  });
}

// Words that do not come fail a step of this rank. This fails the communicator, on all ranks.
TEST_P(LocalOnly, AStepThatFailsEndsTheGroup) {
  for (const int mode : {moeModeHt, moeModeLl}) {
    moeConfig_t patient = small();
    patient.timeoutMs = 500;
    world(2, patient, [&](RankContext& context) {
      moeHandleConfig_t shape = handleOf(mode, moeLayoutExpertMajor);
      shape.localOnly = 1;
      Calls calls(context, shape);
      context.meet();
      if (context.rank == 1) {
        MOE_EXPECT_OK(calls.route(), context);
        MOE_EXPECT_OK(calls.dispatch(calls.dispatchArgs()), context);
        CombineFields combine = calls.combineArgs();
        combine.ready.words = context.arena.put<std::uint32_t>(std::vector<std::uint32_t>{1, 0});
        combine.ready.value = 1;
        calls.combine(combine);
      }
      expectFailure(context, moeTimeout,
                    context.rank == 0 ? "rank 1" : "rank 1: moeCombine: rows of its local expert 1 were not ready");
    });
  }
}

// The slots of such a handle belong to its own room. Between dispatch and combine they are the caller's, like those of
// other handles.
TEST_P(LocalOnly, RowsMayStayInTheirSlots) {
  world(2, small(), [](RankContext& context) {
    moeHandleConfig_t shape = handleOf(moeModeLl, moeLayoutRankMajor);
    shape.localOnly = 1;
    Calls calls(context, shape);
    moeHandleView_t view = MOE_HANDLE_VIEW_INITIALIZER;
    MOE_ASSERT_OK(moeHandleGetView(calls.handle(), &view), context);
    DispatchFields sending = calls.dispatchArgs();
    sending.outRows = nullptr;
    sending.outRowsMax = 0;
    MOE_EXPECT_OK(calls.routeDispatch(sending), context);
    const auto rows = context.arena.get(static_cast<const float*>(view.rows), kTokens * kHidden);
    EXPECT_EQ(rows, std::vector<float>(kTokens * kHidden, 1.0f));
    const std::vector<float> made(kTokens * kHidden, 5.0f);
    context.arena.upload(view.combineRows, made.data(), made.size() * 4);
    CombineFields combine = calls.combineArgs();
    combine.rows = view.combineRows;
    MOE_EXPECT_OK(calls.combine(combine), context);
    calls.expectSums(5.0f);
  });
}

// The caller's allocator, which counts.
struct Blocks {
  static void* take(void* user, std::size_t bytes, std::int32_t) {
    static_cast<Blocks*>(user)->sizes.insert(bytes);
    return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  }
  static void giveBack(void* user, void* memory, std::size_t bytes, std::int32_t) {
    auto& sizes = static_cast<Blocks*>(user)->sizes;
    sizes.erase(sizes.find(bytes));
    std::free(memory);
  }
  std::multiset<std::size_t> sizes;  // bytes of the blocks that are in use
};

// All such handles share one block. It has the size that the documents say, and is freed with the communicator.
TEST(LocalOnlyMemory, IsTakenForTheFirstHandleAndGivenBackWithTheCommunicator) {
  Blocks blocks;
  moeConfig_t config = testConfig(moeBackendHost);
  config.allocate = Blocks::take;
  config.free = Blocks::giveBack;
  config.allocateUser = &blocks;
  config.stagingRows = -1;
  moeConfig_t same = config;
  same.heapBytes = 0;
  same.stagingRows = 0;
  moeMemorySize_t size = MOE_MEMORY_SIZE_INITIALIZER;
  ASSERT_EQ(moeCommGetMemorySize(1, &same, &size), moeSuccess) << moeGetLastError(nullptr);
  moeUniqueId_t id;
  ASSERT_EQ(moeGetUniqueId(&id), moeSuccess) << moeGetLastError(nullptr);
  moeComm_t comm = nullptr;
  ASSERT_EQ(moeCommInit(&comm, 1, 0, &id, &config), moeSuccess) << moeGetLastError(nullptr);
  moeHandleConfig_t shape = handleOf(moeModeHt, moeLayoutFlat);
  moeHandle_t handle = nullptr;
  ASSERT_EQ(moeHandleCreate(&handle, comm, &shape), moeSuccess);
  // refused, which changes nothing
  shape.localOnly = 1;
  shape.topk = 9;
  EXPECT_EQ(moeHandleCreate(&handle, comm, &shape), moeInvalidArgument);
  EXPECT_EQ(blocks.sizes.count(size.windowBytes), 0u);
  shape.topk = kTopk;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(moeHandleCreate(&handle, comm, &shape), moeSuccess);
  EXPECT_EQ(blocks.sizes.count(size.windowBytes), 1u);
  EXPECT_EQ(moeCommDestroy(comm), moeSuccess);
  EXPECT_TRUE(blocks.sizes.empty());
}

MOE_INSTANTIATE_BACKENDS(LocalOnly);

}  // namespace
}  // namespace moe::test
